"""Settings of a network interface that only ``ethtool`` has a command for."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17


def checksums_in_software(interface: str) -> None:
    """Have the kernel compute checksums and cut large segments before frames reach the interface.

    Whoever reads frames off the wire then sees what a wire would carry. Of the calling thread's namespace.
    """
    value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)
