"""Reproducible mode: the same bits on any split, through redone steps, for any optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from daisychain.errors import JobError
from daisychain.trainer.engine import fixed_point
from daisychain.trainer.engine.exchange import Alone, Exchange
from daisychain.trainer.jobs.loaded import LossSum
from support.engine_jobs import (
    Batch,
    Cnn,
    Mlp,
    Noisy,
    Recipe,
    Sometimes,
    adam,
    changing,
    difference,
    falling,
    identical,
    lopsided,
    plain,
    sgd,
    state_of,
    train,
    weighted_loss,
)
from support.local_exchange import LocalWorld

State = dict[str, torch.Tensor]


def trained(
    recipe: Recipe, size: int, shares: Callable[[int, int, int], tuple[int, ...]] = changing
) -> State:
    def main(exchange: Exchange) -> State:
        engine = recipe.engine()
        losses = train(engine, exchange, shares)
        evaluation = engine.evaluate(exchange, shares(0, engine.evaluation_units(), exchange.size))
        told = [*losses, evaluation.loss, *evaluation.metrics.values()]
        return {
            **state_of(engine.job),
            **engine.extra_state(),
            "told": torch.tensor(told, dtype=torch.float64),
        }

    states = LocalWorld(size).run(main)
    assert all(identical(states[0], each) for each in states), "the ranks differ"
    return states[0]


NOISY = Recipe(Noisy, adam, steps=34, dtype=torch.float32, reproducible=True, schedule=falling)


@pytest.mark.parametrize(
    "recipe",
    [
        NOISY,
        replace(NOISY, optimizer=sgd),
        replace(NOISY, model=Cnn, loss=weighted_loss, clip=0.1),
        replace(NOISY, model=Sometimes, batch=12, granule=2),
        replace(NOISY, dtype=torch.float64),
    ],
    ids=["noisy adam", "noisy sgd", "cnn clipped weighted", "used by some", "float64"],
)
def test_every_split_ends_in_the_same_bits(recipe: Recipe) -> None:
    alone = trained(recipe, 1)
    for size in (2, 3, 4):
        assert identical(alone, trained(recipe, size)), f"{size} ranks differ from one"
    assert identical(alone, trained(recipe, 3, lopsided))


def test_the_default_mode_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can tell: float32 sums of other splits round otherwise."""
    recipe = replace(NOISY, reproducible=False, granules=True)
    assert not identical(trained(recipe, 1), trained(recipe, 3))


def test_fixed_point_is_as_good_as_floating_point() -> None:
    recipe = Recipe(Mlp, sgd, granules=True, steps=30)
    expected, _ = plain(replace(recipe, dtype=torch.float64))
    fixed = trained(replace(recipe, reproducible=True, dtype=torch.float32), 2)
    shared = {name: fixed[name] for name in expected}
    assert difference(expected, shared) < 1e-5
    wide = trained(replace(recipe, reproducible=True), 2)
    assert difference(expected, {name: wide[name] for name in expected}) < 1e-12


class Counting(Alone):
    """Counts how often a step had to be redone."""

    def __init__(self) -> None:
        self.redone = 0

    def max(self, tensor: torch.Tensor) -> object:  # type: ignore[override]
        self.redone += 1
        return super().max(tensor)


def test_only_the_first_step_is_redone() -> None:
    counting = Counting()
    train(NOISY.engine(), counting)  # type: ignore[arg-type]
    assert counting.redone == 1


def exploding_loss(model: nn.Module, batch: Batch) -> LossSum:
    """A loss that is a thousand times as large for a few samples: their granule does not fit."""
    size = torch.where(batch[0][:, 1] > 1.9, 1000.0, 1.0).to(batch[0].dtype)
    each = nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
    return LossSum((each * size).sum(), float(len(size)))


def test_a_step_out_of_range_is_redone_alike_on_any_split() -> None:
    recipe = replace(NOISY, model=Mlp, optimizer=sgd, loss=exploding_loss, clip=1.0, batch=12, granule=3)
    counting = Counting()
    engine = recipe.engine()
    train(engine, counting)  # type: ignore[arg-type]
    assert counting.redone > 2, "no step left the range: nothing was tested"
    alone = trained(recipe, 1)
    assert identical(state_of(engine.job), {name: alone[name] for name in state_of(engine.job)})
    for size in (2, 4):
        assert identical(alone, trained(recipe, size))


def test_exponents_are_state() -> None:
    """Half a run here, half on a joiner that got the state, is the whole run."""
    expected = trained(NOISY, 1)
    first, joiner = NOISY.engine(), NOISY.engine()
    train(first, Alone(), steps=range(20))
    joiner.job.model.load_state_dict(first.job.model.state_dict())
    joiner.job.optimizer.load_state_dict(first.job.optimizer.state_dict())
    assert joiner.job.schedule is not None and first.job.schedule is not None
    joiner.job.schedule.load_state_dict(first.job.schedule.state_dict())
    joiner.load_extra_state(first.extra_state())
    train(joiner, Alone(), steps=range(20, 34))
    assert identical(state_of(joiner.job), {name: expected[name] for name in state_of(joiner.job)})


def test_extra_state_of_another_job_is_refused() -> None:
    other = replace(NOISY, model=Cnn).engine()
    with pytest.raises(ValueError, match="exponents expected"):
        NOISY.engine().load_extra_state({"exponents": other.extra_state()["exponents"][:2]})
    assert Recipe().engine().extra_state() == {}


def test_a_loss_that_remembers_is_refused() -> None:
    calls: list[int] = []

    def remembering(model: nn.Module, batch: Batch) -> LossSum:
        if model.training:
            calls.append(1)
        factor = 2.0 ** len(calls)
        return LossSum(nn.functional.cross_entropy(model(batch[0]), batch[1]) * factor, 1.0 * len(batch[1]))

    recipe = Recipe(Mlp, loss=remembering, reproducible=True, dtype=torch.float64)
    engine = recipe.engine()
    position = engine.timeline.position(0)
    with pytest.raises(JobError, match="another gradient when it was computed again"):
        engine.reduce_step(Alone(), position, (engine.units(position),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("granules", [1, 2, 5, 16, 33])
def test_no_sum_of_a_batch_can_overflow(dtype: torch.dtype, granules: int) -> None:
    width = 63 if dtype == torch.float64 else 31
    assert granules * 2 ** fixed_point.bits(granules, dtype) <= 2 ** (width - fixed_point.HEADROOM)


def test_exponents_are_the_least_that_hold_a_magnitude() -> None:
    magnitudes = torch.tensor([0.0, 1.0, 0.999, 1024.0, 1e-40], dtype=torch.float64)
    found = fixed_point.exponents_of(magnitudes).tolist()
    assert found == [fixed_point.UNKNOWN, 1, 0, 11, fixed_point.LOWEST]


def test_an_all_zero_gradient_keeps_its_exponent_and_others_fall_by_one() -> None:
    exponents = torch.tensor([7, 7, fixed_point.UNKNOWN, -20])
    gradients = [torch.zeros(2), torch.full((2,), 0.6), torch.zeros(1), torch.ones(1)]
    assert fixed_point.follow(exponents, gradients).tolist() == [7, 6, fixed_point.UNKNOWN, 4]
