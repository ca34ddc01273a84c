"""Keeps Python's garbage collector away from what lives as long as the process.

torch and what it imports are some 200,000 objects. A full collection looks at each of them and finds nothing:
0.14 s in which this node holds up its whole world. It came with every 1,500 lines of a record that a joiner
received, and now and then in a long run.
"""

from __future__ import annotations

import gc


def set_aside() -> None:
    """Collect once, and never again look at what is left: called when everything that lasts is loaded."""
    gc.collect()
    gc.freeze()
