"""Training state to bytes and back."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daisychain.errors import JobError, ProtocolError
from daisychain.trainer.state.trees import HEADER_MAX_BYTES, pack, unpack


def back_and_forth(tree: Any) -> Any:
    packed = pack(tree)
    return unpack(packed.header, packed.payload)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=6) | st.integers(-5, 5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_values_come_back_as_they_were(tree: Any) -> None:
    found = back_and_forth(tree)
    assert found == tree
    assert type(found) is type(tree)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool]
)
def test_tensors_come_back_to_the_bit(dtype: torch.dtype) -> None:
    for shape in ((), (0,), (3,), (2, 0, 4), (5, 7)):
        tensor = (100 * torch.randn(shape)).to(dtype)
        found = back_and_forth({"a": [tensor, (tensor.clone(),)], 3: "x"})
        assert torch.equal(found["a"][0], tensor)
        assert found["a"][1][0].dtype == dtype
        assert found["a"][0].shape == tensor.shape


def test_an_optimizer_and_its_schedules_go_on_where_they_were() -> None:
    def made() -> tuple[torch.nn.Linear, torch.optim.Optimizer, list[Any]]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        schedules = [
            torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4]),
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
            torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        ]
        return model, optimizer, schedules

    def advance(model: torch.nn.Linear, optimizer: torch.optim.Optimizer, schedules: list[Any]) -> None:
        optimizer.zero_grad()
        model(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()
        for schedule in schedules[:2]:
            schedule.step()

    model, optimizer, schedules = made()
    for _ in range(3):
        advance(model, optimizer, schedules)
    state = back_and_forth(
        [model.state_dict(), optimizer.state_dict(), [each.state_dict() for each in schedules]]
    )
    other, other_optimizer, other_schedules = made()
    other.load_state_dict(state[0])
    other_optimizer.load_state_dict(state[1])
    for schedule, own in zip(other_schedules, state[2], strict=True):
        schedule.load_state_dict(own)
    assert isinstance(other_schedules[0].milestones, Counter)
    for _ in range(3):
        advance(model, optimizer, schedules)
        advance(other, other_optimizer, other_schedules)
    assert torch.equal(model.weight, other.weight)


def test_equal_trees_give_equal_bytes_whatever_the_order_of_their_keys() -> None:
    one, two = pack({"b": 1, "a": torch.ones(2), 3: 2}), pack({3: 2, "a": torch.ones(2), "b": 1})
    assert one.header == two.header
    assert torch.equal(one.payload, two.payload)


def test_numpy_numbers_travel_as_numbers() -> None:
    assert back_and_forth({"lr": np.float64(0.25), "n": np.int64(3)}) == {"lr": 0.25, "n": 3}


@pytest.mark.parametrize(
    "value", [lambda: 1, object(), {1.5: 2}, {"x": {2}}, torch.ones(2, dtype=torch.complex64)]
)
def test_what_cannot_travel_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(JobError, match=r"state\.optimizer\.thing"):
        pack({"optimizer": {"thing": value}})


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"[[],[],[]]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'[[["float32",[1000000000000]]],{"x":0}]',
        b'[[["float32",[-1]]],{"x":0}]',
        b'[[["float32",[true]]],{"x":0}]',
        b'[[["object",[1]]],{"x":0}]',
        b'[[["float32",[1]]],{"x":1}]',
        b'[[["float32",[1]]],{"x":-1}]',
        b'[[["float32",[1]]],{"y":0}]',
        b'[[["float32",[1]]],{"x":0,"l":[]}]',
        b'[[["float32",[1]]],{"d":[[[1],2]]}]',
        b'[[["float32",[1]]],["bare"]]',
        b'[[["float32",[0]]],{"x":0}]',
    ],
)
def test_a_header_that_no_donor_would_send_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(header, torch.zeros(4, dtype=torch.uint8))


def test_nesting_and_size_are_bounded() -> None:
    deep: Any = 1
    for _ in range(30):
        deep = {"l": [deep]}
    with pytest.raises(ProtocolError, match="deep"):
        unpack(json.dumps([[], deep]).encode(), torch.zeros(0, dtype=torch.uint8))
    with pytest.raises(ProtocolError, match="over the limit"):
        unpack(b" " * (HEADER_MAX_BYTES + 1), torch.zeros(0, dtype=torch.uint8))


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes) -> None:
    try:
        unpack(data, torch.zeros(4, dtype=torch.uint8))
    except ProtocolError:
        return
    raise AssertionError("garbage was taken for a state of four bytes")
