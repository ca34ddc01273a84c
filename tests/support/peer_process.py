"""A node's transport in a process of its own, to be killed: ``python -m support.peer_process ...``.

Arguments: state folder, cluster key, and the port to dial on loopback. Prints its own port. It dials
back whoever dials it, and answers heartbeats.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from daisychain.core.ids import Address
from daisychain.core.messages import Heartbeat, HeartbeatAck
from daisychain.net.identity.cluster_key import ClusterKey
from support.chain_node import LOOPBACK, ChainNode


async def main(folder: Path, key: ClusterKey, port: int) -> None:
    node = ChainNode(folder, "peer", key)
    await node.start()
    print(node.address.port, flush=True)
    node.answer = lambda event: (
        node.transport.send(event.node_id, HeartbeatAck(event.message.seq))
        if isinstance(event.message, Heartbeat)
        else None
    )
    node.transport.dial(Address(LOOPBACK, port))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), ClusterKey.parse(sys.argv[2]), int(sys.argv[3])))
