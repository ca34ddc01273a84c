"""What lasts is set aside, and garbage is not kept with it."""

from __future__ import annotations

import gc
import weakref

from daisychain.trainer.collector import set_aside


class Knot:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_there_is_never_looked_at_again_and_garbage_is_gone_first() -> None:
    lasting, garbage = Knot(), Knot()
    kept, gone = weakref.ref(lasting), weakref.ref(garbage)
    del garbage
    try:
        set_aside()
        assert gone() is None
        assert kept() is lasting
        assert not any(each is lasting for each in gc.get_objects())
        later = Knot()
        assert any(each is later for each in gc.get_objects()), "what comes later is collected as ever"
    finally:
        gc.unfreeze()
