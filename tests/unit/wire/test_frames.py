from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import ProtocolError
from daisychain.wire.frames import FrameReader, frame


@given(st.lists(st.binary(max_size=50), max_size=8), st.data())
def test_frames_come_out_whole_however_the_stream_is_cut(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(payload) for payload in payloads)
    reader, found = FrameReader(), list[bytes]()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == payloads


def test_an_unfinished_frame_waits() -> None:
    reader = FrameReader()
    assert reader.feed(frame(b"hello")[:-1]) == []
    assert reader.feed(b"o") == [b"hello"]


def test_an_oversized_frame_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(ProtocolError, match="over the limit of 10"):
        FrameReader(max_bytes=10).feed(struct.pack("!I", 11))
    assert FrameReader(max_bytes=10).feed(frame(b"x" * 10)) == [b"x" * 10]
