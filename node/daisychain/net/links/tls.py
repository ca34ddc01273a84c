"""TLS as every control connection uses it: version 1.3, both sides verified, no host names.

A host name says nothing in a chain (addresses change, names are not unique): what is checked
is that the certificate was issued under the cluster's own authority, and which node id it proves.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from daisychain.core.ids import NodeId
from daisychain.errors import IdentityError, ProtocolError
from daisychain.net.identity.certificates import Authority, node_id_in
from daisychain.net.identity.node_identity import NodeIdentity


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """The two ends of a control connection, made once a transport.

    ``inspect`` verifies nothing and shows nothing: it reads the certificate of a node that was
    refused, to name its cluster. Nothing is ever sent over it.
    """

    accept: ssl.SSLContext
    dial: ssl.SSLContext
    inspect: ssl.SSLContext

    @classmethod
    def make(cls, identity: NodeIdentity, authority: Authority) -> TlsContexts:
        """Write the node's certificate and return contexts that trust ``authority`` alone.

        Raises `IdentityError` when the files cannot be written or the TLS library refuses them.
        """
        identity.certify(authority)
        try:
            accept = _context(ssl.PROTOCOL_TLS_SERVER, identity, authority)
            dial = _context(ssl.PROTOCOL_TLS_CLIENT, identity, authority)
        except (ssl.SSLError, OSError) as error:
            raise IdentityError(
                f"the TLS library refuses the certificate in {identity.folder} ({error})",
                "Delete that folder: the node takes a new id at its next start.",
            ) from None
        # No session tickets: each link proves both certificates anew, and a copied ticket is worthless.
        accept.num_tickets = 0
        inspect = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        inspect.minimum_version = ssl.TLSVersion.TLSv1_3
        inspect.check_hostname = False
        inspect.verify_mode = ssl.CERT_NONE
        return cls(accept, dial, inspect)


def proven_node_id(tls: ssl.SSLObject | None) -> NodeId:
    """Return the node id that the other side of a finished handshake proved.

    Raises `ProtocolError` when there is no TLS, no certificate, or one that proves no node id.
    """
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    if der is None:
        raise ProtocolError("a connection without a certificate")
    return node_id_in(der)


def _context(protocol: ssl._SSLMethod, identity: NodeIdentity, authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=authority.pem)
    context.load_cert_chain(identity.certificate_path, identity.key_path)
    return context
