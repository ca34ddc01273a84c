"""A part of a step that is at fault is its own rank's alone; the others find their world broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import nn

from daisychain.errors import JobError, JobMemoryError, WorldError
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.exchange import Exchange
from daisychain.trainer.jobs.loaded import LossSum
from support.engine_jobs import Batch, Mlp, Noisy, Recipe, accuracy, identical, plain_loss, state_of, train
from support.local_exchange import LocalRank, LocalWorld

MODES = {
    "default": Recipe(Mlp),
    "granules": Recipe(Noisy, granules=True),
    "reproducible": Recipe(Noisy, granules=True).exact(),
}
RANKS = 3
BAD = 1
"""The rank whose part is at fault."""

Loss = Callable[[nn.Module, Batch], LossSum]


def on_one(engine: Engine, rank: int, loss: Loss) -> None:
    """Have ``engine`` compute with ``loss`` where it is the rank that is at fault."""
    if rank == BAD:
        engine.job.loss = loss


def told_by_each(recipe: Recipe, spoil: Callable[[Engine, int], None], steps: int = 1) -> list[Exception]:
    """Train on three ranks, ``spoil`` applied to each, and return what each raised; no state changes."""

    def main(exchange: Exchange) -> Exception:
        engine = recipe.engine()
        train(engine, exchange, steps=range(steps))
        before, extra = state_of(engine.job), engine.extra_state()
        spoil(engine, exchange.rank)
        try:
            train(engine, exchange, steps=range(steps, steps + 1))
        except (JobError, WorldError) as error:
            assert identical(before, state_of(engine.job))
            assert identical(extra, engine.extra_state())
            assert all(parameter.grad is None for parameter in engine.job.model.parameters())
            assert engine.healthy
            return error
        raise AssertionError("the step was computed")

    return LocalWorld(RANKS).run(main)


def is_blamed(told: list[Exception], *words: str) -> None:
    """Assert that only the rank at fault raised `JobError`."""
    assert [type(error) for error in told] == [
        JobError if rank == BAD else WorldError for rank in range(RANKS)
    ]
    for error in told:
        assert all(word in str(error) for word in words), error
    assert all("another member's part" in str(told[rank]) for rank in range(RANKS) if rank != BAD)


class Spoilt(torch.autograd.Function):
    """Passes its input on, and multiplies the gradient by a number."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, by: float) -> torch.Tensor:
        ctx.by = by  # type: ignore[attr-defined]
        return x.clone()

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradient: torch.Tensor
    ) -> tuple[torch.Tensor, None]:
        return gradient[0] * ctx.by, None  # type: ignore[attr-defined]


def spoilt_by(number: float) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> LossSum:
        found = plain_loss(model, batch)
        value: torch.Tensor = Spoilt.apply(found.sum, number)  # type: ignore[no-untyped-call]
        return LossSum(value, found.weight)

    return loss


def times(number: float) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> LossSum:
        found = plain_loss(model, batch)
        return LossSum(found.sum * number, found.weight)

    return loss


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_its_own_ranks_fault(mode: str, number: float) -> None:
    told = told_by_each(MODES[mode], lambda engine, rank: on_one(engine, rank, times(number)))
    is_blamed(told, "NaN or infinite in step 2")


@pytest.mark.parametrize("mode", MODES)
def test_a_weight_that_is_not_finite_is_its_own_ranks_fault(mode: str) -> None:
    def heavy(model: nn.Module, batch: Batch) -> LossSum:
        return LossSum(plain_loss(model, batch).sum, float("nan"))

    told = told_by_each(MODES[mode], lambda engine, rank: on_one(engine, rank, heavy))
    is_blamed(told, "NaN or infinite in step 2")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
def test_a_gradient_that_is_not_finite_under_a_finite_loss_is_its_own_ranks_fault(
    mode: str, number: float
) -> None:
    told = told_by_each(MODES[mode], lambda engine, rank: on_one(engine, rank, spoilt_by(number)))
    is_blamed(told, "NaN or infinite in step 2")


@pytest.mark.parametrize("mode", MODES)
def test_every_rank_is_to_blame_where_every_part_is_at_fault(mode: str) -> None:
    def spoil(engine: Engine, rank: int) -> None:
        engine.job.loss = spoilt_by(float("nan"))

    assert [type(error) for error in told_by_each(MODES[mode], spoil)] == [JobError] * RANKS


def test_a_sum_that_overflows_is_every_ranks_fault() -> None:
    """Each part is finite, and no node would do better."""
    recipe = Recipe(Mlp, dtype=torch.float32)
    parts: list[bool] = []

    def spoil(engine: Engine, rank: int) -> None:
        bias = engine.job.model.get_parameter("2.bias")

        def loss(model: nn.Module, batch: Batch) -> LossSum:
            # Its gradient is that of the whole batch's mean: nearly the largest float32 on every rank.
            large = bias[0] * 3e38 * (engine.timeline.position(1).samples / len(batch[1]) / 2)
            return LossSum((large - large.detach()) * len(batch[1]), float(len(batch[1])))

        def reduced(*_: object) -> None:
            gradient = bias.grad
            assert gradient is not None
            parts.append(bool(torch.isfinite(gradient).all()))

        engine.job.loss = loss
        bias.register_post_accumulate_grad_hook(reduced)  # type: ignore[no-untyped-call]

    told = told_by_each(recipe, spoil)
    assert parts == [True] * RANKS
    assert [type(error) for error in told] == [JobError] * RANKS
    assert all("the gradient of 2.bias is NaN or infinite in step 2" in str(error) for error in told)


def test_who_draws_from_elsewhere_between_two_tries_is_to_blame() -> None:
    """A granule that never fits twice: reproducible mode computes the step again with what it needed."""
    calls: list[int] = []

    def growing(model: nn.Module, batch: Batch) -> LossSum:
        calls.append(1)
        found = plain_loss(model, batch)
        return LossSum(found.sum * 2.0 ** (6 * len(calls)), found.weight)

    told = told_by_each(MODES["reproducible"], lambda engine, rank: on_one(engine, rank, growing))
    is_blamed(told, "step 2 gave another gradient when it was computed again")


@pytest.mark.parametrize("mode", MODES)
def test_what_the_users_code_raises_is_told_by_its_own_rank(mode: str) -> None:
    def failing(model: nn.Module, batch: Batch) -> LossSum:
        raise KeyError("no such column")

    told: dict[int, Exception] = {}

    def main(exchange: Exchange) -> None:
        engine = MODES[mode].engine()
        on_one(engine, exchange.rank, failing)
        try:
            train(engine, exchange, steps=range(1))
        except (JobError, WorldError) as error:
            told[exchange.rank] = error
            raise

    with pytest.raises(JobError, match="KeyError in step 1: 'no such column'"):
        LocalWorld(RANKS).run(main)
    assert {rank: type(error) for rank, error in told.items()} == {0: WorldError, 1: JobError, 2: WorldError}


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["Python's", "a card's", "torch's on the host"],
)
def test_want_of_memory_is_told_apart_from_what_the_job_does_wrong(error: Exception) -> None:
    def hungry(model: nn.Module, batch: Batch) -> LossSum:
        raise error

    engine = Recipe(Mlp).engine()
    engine.job.loss = hungry
    with pytest.raises(JobMemoryError, match=r"in step 1: .*granule or the global batch smaller"):
        LocalWorld(1).run(lambda exchange: train(engine, exchange, steps=range(1)))


# --- the evaluation --------------------------------------------------------------------------------------


def evaluations(spoil: Callable[[Engine, int], None]) -> list[Exception]:
    """Evaluate on three ranks and return what each raised."""

    def main(exchange: LocalRank) -> Exception:
        engine = Recipe(Mlp).engine()
        spoil(engine, exchange.rank)
        try:
            engine.evaluate(exchange, (12, 12, 13))
        except (JobError, WorldError) as error:
            assert engine.job.model.training
            return error
        raise AssertionError("it was evaluated")

    return LocalWorld(RANKS).run(main)


def test_a_held_out_loss_that_is_not_finite_is_its_own_ranks_fault() -> None:
    told = evaluations(lambda engine, rank: on_one(engine, rank, times(float("nan"))))
    is_blamed(told, "the loss is NaN or infinite on the held-out data")


def test_a_metric_that_is_not_finite_is_its_own_ranks_fault() -> None:
    def metrics(model: nn.Module, batch: Batch) -> Mapping[str, tuple[float, float]]:
        return {**accuracy(model, batch), "margin": (float("inf"), 1.0)}

    def spoil(engine: Engine, rank: int) -> None:
        if rank == BAD:
            engine.job.metrics = metrics

    is_blamed(evaluations(spoil), "metric margin is NaN or infinite on the held-out data")


def test_each_rank_names_what_is_at_fault_in_its_own_part() -> None:
    def metrics(model: nn.Module, batch: Batch) -> Mapping[str, tuple[float, float]]:
        return {**accuracy(model, batch), "margin": (float("inf"), 1.0)}

    def spoil(engine: Engine, rank: int) -> None:
        on_one(engine, rank, times(float("nan")))
        if rank == 2:
            engine.job.metrics = metrics

    first, second, third = evaluations(spoil)
    assert isinstance(first, WorldError)
    assert isinstance(second, JobError) and "the loss is NaN" in str(second)
    assert isinstance(third, JobError) and "metric margin is NaN" in str(third)


# --- what it costs ---------------------------------------------------------------------------------------


class Counting:
    """An exchange that counts the collectives."""

    def __init__(self, inner: Exchange) -> None:
        self._inner = inner
        self.rank, self.size = inner.rank, inner.size
        self.sum, self.max = self._counted(inner.sum), self._counted(inner.max)
        self.issued = 0

    def _counted(self, collective: Callable[[torch.Tensor], object]) -> Callable[[torch.Tensor], object]:
        def count(tensor: torch.Tensor) -> object:
            self.issued += 1
            return collective(tensor)

        return count


def test_an_ordinary_step_asks_nobody_whose_fault_it_is() -> None:
    def main(exchange: LocalRank) -> int:
        engine = Recipe(Mlp).engine()
        counting = Counting(exchange)
        train(engine, counting, steps=range(1))  # type: ignore[arg-type]
        return counting.issued

    assert LocalWorld(RANKS).run(main) == [2] * RANKS  # one bucket of gradients, and the tail
