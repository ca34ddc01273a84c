"""Any split over any number of ranks gives the gradient, and so the training, of one plain process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from daisychain.trainer.engine import gradients
from daisychain.trainer.engine.exchange import Alone
from support.engine_jobs import (
    Cnn,
    GroupNormed,
    Mlp,
    Noisy,
    Recipe,
    Sometimes,
    Tied,
    adam,
    changing,
    difference,
    falling,
    lopsided,
    plain,
    sgd,
    state_of,
    train,
    weighted_loss,
)
from support.local_exchange import LocalWorld

RECIPES = {
    "mlp": Recipe(Mlp, adam),
    "cnn": Recipe(Cnn, adam),
    "group norm": Recipe(GroupNormed, sgd),
    "weighted loss": Recipe(Mlp, adam, weighted_loss),
    "tied, unused and frozen": Recipe(Tied, adam),
    "used by some": Recipe(Sometimes, adam, batch=6),
    "clipped": Recipe(Mlp, sgd, weighted_loss, clip=0.05),
    "scheduled": Recipe(Mlp, sgd, schedule=falling),
    "one batch an epoch": Recipe(Mlp, sgd, samples=20, batch=64),
}


def trained(
    recipe: Recipe, size: int, shares: Callable[[int, int, int], tuple[int, ...]]
) -> list[dict[str, torch.Tensor]]:
    def main(exchange: object) -> dict[str, torch.Tensor]:
        engine = recipe.engine()
        losses.append(train(engine, exchange, shares))  # type: ignore[arg-type]
        return state_of(engine.job)

    losses: list[list[float]] = []
    states = LocalWorld(size).run(main)
    assert all(each == losses[0] for each in losses), "the ranks tell different losses"
    return states


@pytest.mark.parametrize(("size", "shares"), [(1, changing), (2, changing), (3, lopsided), (4, changing)])
@pytest.mark.parametrize("name", RECIPES)
def test_any_split_trains_as_one_process(
    name: str, size: int, shares: Callable[[int, int, int], tuple[int, ...]]
) -> None:
    recipe = RECIPES[name]
    expected, _ = plain(recipe)
    for state in trained(recipe, size, shares):
        assert difference(expected, state) < 1e-12


def test_float32_stays_within_its_rounding() -> None:
    recipe = replace(RECIPES["cnn"], dtype=torch.float32, optimizer=sgd)
    expected, _ = plain(recipe)
    for state in trained(recipe, 3, changing):
        assert difference(expected, state) < 1e-5


def test_the_loss_is_the_mean_over_the_whole_batch() -> None:
    recipe = RECIPES["weighted loss"]
    _, expected = plain(recipe)

    def main(exchange: object) -> list[float]:
        return train(recipe.engine(), exchange)  # type: ignore[arg-type]

    for losses in LocalWorld(3).run(main):
        assert losses == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_granules_train_as_one_process_that_takes_them_one_by_one(size: int) -> None:
    """Batch norm's running statistics, folded in position order, and dropout's masks included."""
    recipe = Recipe(Noisy, sgd, granules=True, samples=82)  # 82 = 3 x 24 + 10
    expected, _ = plain(recipe)
    for state in trained(recipe, size, changing):
        assert difference(expected, state) < 1e-9


def test_a_last_batch_of_one_sample_is_trained_despite_batch_norm() -> None:
    recipe = Recipe(Noisy, sgd, granules=True, samples=49, batch=24, steps=6)
    states = [state for size in (1, 3) for state in trained(recipe, size, changing)]
    assert all(difference(states[0], each) < 1e-9 for each in states)
    assert int(states[0]["1.num_batches_tracked"]) == 4 * 5, "a single sample has no statistics to add"


def test_a_share_is_computed_in_micro_batches_when_it_is_large() -> None:
    recipe = Recipe(Mlp, adam)
    expected, _ = plain(recipe)

    def main(exchange: object) -> dict[str, torch.Tensor]:
        engine = recipe.engine()
        engine.computer.largest = 5
        train(engine, exchange)  # type: ignore[arg-type]
        return state_of(engine.job)

    for state in LocalWorld(2).run(main):
        assert difference(expected, state) < 1e-12


def test_buckets_leave_while_backward_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several small buckets: the first is sent before backward has reached the first layer."""
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 64)
    engine = Recipe(Mlp).engine()
    layout = gradients.Layout(engine.job.model, "model.py", bucket_bytes=64)
    engine.computer.layout.buckets = layout.buckets
    engine.computer.layout.bucket_of = layout.bucket_of
    filled: list[int] = []

    class Watching(Alone):
        size = 2

        def sum(self, tensor: torch.Tensor) -> object:  # type: ignore[override]
            filled.append(sum(each.grad is not None for each in layout.parameters))
            return super().sum(tensor)

    position = engine.timeline.position(0)
    engine.reduce_step(Watching(), position, (24, 0))  # type: ignore[arg-type]
    assert len(layout.buckets) >= 3
    assert filled[0] < len(layout.parameters), "nothing was sent before backward ended"
    assert [member for bucket in layout.buckets for member in bucket.members] == [3, 2, 1, 0]
