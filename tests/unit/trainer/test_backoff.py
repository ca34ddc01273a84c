"""Memory that runs out in mid-run: the same step in smaller pieces, the same numbers, and on it goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from daisychain.errors import JobMemoryError
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.exchange import Alone, Exchange
from daisychain.trainer.engine.gradients import Layout
from daisychain.trainer.jobs.loaded import LossSum
from support.engine_jobs import Batch, Mlp, Noisy, Recipe, adam, difference, plain_loss, state_of, train
from support.local_exchange import LocalWorld

NO_MEMORY = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: 1 bytes"


class Greedy:
    """A loss for which memory suffices up to ``most`` samples at a time, once it is switched on.

    ``where``: it runs out in ``forward`` or, with the gradients of the later layers already complete, in
    ``backward``.
    """

    def __init__(self, most: int, where: str, error: Callable[[], Exception]) -> None:
        self.most, self.where, self.error = most, where, error
        self.on = True
        self.failures = 0

    def __call__(self, model: nn.Module, batch: Batch) -> LossSum:
        too_many = self.on and len(batch[1]) > self.most
        if too_many and self.where == "forward":
            self.failures += 1
            raise self.error()
        inputs = batch[0]
        if too_many:
            inputs = inputs.detach().requires_grad_(True)
            inputs.register_hook(self._fail)  # type: ignore[no-untyped-call] # the last that backward comes to
        return plain_loss(model, (inputs, batch[1]))

    def _fail(self, gradient: torch.Tensor) -> None:
        self.failures += 1
        raise self.error()


ERRORS: dict[str, Callable[[], Exception]] = {
    "python": MemoryError,
    "torch": lambda: RuntimeError(NO_MEMORY),
    "accelerator": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"),
}


def engine_of(loss: Greedy, model: Callable[[], nn.Module] = Mlp) -> Engine:
    """Return an engine whose memory falls short only now, with many small buckets."""
    loss.on = False
    engine = Recipe(model, adam, loss=loss).engine()
    engine.computer.layout = Layout(engine.job.model, "model.py", bucket_bytes=64)
    loss.on = True
    return engine


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_step_for_which_memory_does_not_suffice_is_done_in_smaller_pieces(
    where: str, size: int, error: str
) -> None:
    expected = Recipe(Mlp, adam).engine()
    losses = train(expected, Alone())

    def main(exchange: Exchange) -> tuple[float, list[float], int, int]:
        greedy = Greedy(5 if exchange.rank == 0 else 1000, where, ERRORS[error])
        engine = engine_of(greedy)
        found = train(engine, exchange)
        return (
            difference(state_of(expected.job), state_of(engine.job)),
            found,
            greedy.failures,
            (engine.computer.largest),
        )

    for rank, (apart, found, failures, largest) in enumerate(LocalWorld(size).run(main)):
        assert apart < 1e-9
        assert found == pytest.approx(losses, rel=1e-9)
        if rank == 0:
            assert 1 <= largest <= 5
            assert 1 <= failures <= 4, "it does not try the old size again and again"
        else:
            assert failures == 0 and largest > 1000


def test_an_evaluation_for_which_memory_does_not_suffice_is_done_in_smaller_pieces() -> None:
    expected = Recipe(Mlp, adam).engine().evaluate(Alone(), (37,))
    engine = engine_of(Greedy(4, "forward", MemoryError))
    found = engine.evaluate(Alone(), (37,))
    assert found.samples == 37
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)
    assert engine.job.model.training


def test_one_sample_that_does_not_fit_fails_here_and_says_why() -> None:
    engine = engine_of(Greedy(0, "forward", lambda: RuntimeError(NO_MEMORY)))
    with pytest.raises(JobMemoryError, match=r"in step 1: .*can't allocate memory"):
        train(engine, Alone())
    assert engine.computer.largest == 1


def test_a_granule_is_never_cut() -> None:
    greedy = Greedy(2, "forward", MemoryError)
    greedy.on = False
    engine = Recipe(Noisy, adam, loss=greedy, granules=True).engine()
    greedy.on = True
    with pytest.raises(JobMemoryError, match="in step 1"):
        train(engine, Alone())
    assert greedy.failures == 1


def test_an_error_of_another_kind_is_raised_at_once() -> None:
    greedy = Greedy(2, "forward", lambda: RuntimeError("shapes do not match"))
    with pytest.raises(Exception, match="shapes do not match"):
        train(engine_of(greedy), Alone())
    assert greedy.failures == 1
