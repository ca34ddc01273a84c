"""A step that fails leaves no trace; a prepared one outlives its world; what cannot be trained is named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from daisychain.errors import JobError, WorldError
from daisychain.trainer.engine.engine import Engine, Reduced
from daisychain.trainer.engine.exchange import Alone, Exchange
from daisychain.trainer.engine.rounding import rounding_digest
from daisychain.trainer.jobs.loaded import LoadedJob, LossSum
from daisychain.trainer.jobs.user_code import UserCode
from support.engine_jobs import (
    FEATURES,
    Batch,
    Mlp,
    Noisy,
    Recipe,
    adam,
    changing,
    difference,
    identical,
    plain_loss,
    sgd,
    state_of,
    train,
)
from support.local_exchange import Breaking, LocalWorld

NOISY = Recipe(Noisy, adam, granules=True)
MODES = {"default": Recipe(Mlp, adam), "granules": NOISY, "reproducible": NOISY.exact()}


class Pretended(Alone):
    """A world of two of which only this rank exists: collectives complete, with nothing added."""

    size = 2


def attempt(engine: Engine, at: int, when_waiting: bool, step: int = 0) -> bool:
    """Try a step whose ``at``-th collective fails; return whether it got that far."""
    position = engine.timeline.position(step)
    units = engine.units(position)
    exchange: Exchange = Breaking(Pretended(), at, when_waiting)
    try:
        engine.reduce_step(exchange, position, (units - 1, 1))
    except WorldError:
        return True
    return False


@pytest.mark.parametrize("when_waiting", [False, True])
@pytest.mark.parametrize("done", [0, 2])  # step 0 is redone in reproducible mode: more collectives
@pytest.mark.parametrize("mode", MODES)
def test_a_broken_world_leaves_the_state_untouched_at_every_collective(
    mode: str, done: int, when_waiting: bool
) -> None:
    engine, oracle = MODES[mode].engine(), MODES[mode].engine()
    train(engine, Alone(), steps=range(done))
    train(oracle, Alone(), steps=range(done))
    before, extra = state_of(engine.job), engine.extra_state()
    at = 0
    while attempt(engine, at, when_waiting, step=done):
        assert identical(before, state_of(engine.job))
        assert identical(extra, engine.extra_state())
        assert all(parameter.grad is None for parameter in engine.job.model.parameters())
        assert engine.job.model.training
        at += 1
    assert at >= 2
    train(engine, Alone(), steps=range(done, 6))
    train(oracle, Alone(), steps=range(done, 6))
    assert identical(state_of(oracle.job), state_of(engine.job)), "the redone step differs"


@pytest.mark.parametrize("mode", MODES)
def test_a_prepared_step_may_be_applied_after_its_world_broke(mode: str) -> None:
    recipe = MODES[mode]
    prepared: dict[int, tuple[Engine, Reduced]] = {}

    def main(exchange: Exchange) -> None:
        engine = recipe.engine()
        train(engine, exchange, steps=range(3))
        position = engine.timeline.position(3)
        shares = changing(3, engine.units(position), exchange.size)
        prepared[exchange.rank] = engine, engine.reduce_step(exchange, position, shares)

    LocalWorld(2).run(main)

    def whole(exchange: Exchange) -> dict[str, torch.Tensor]:
        engine = recipe.engine()
        train(engine, exchange, steps=range(4))
        return state_of(engine.job)

    expected = LocalWorld(2).run(whole)
    for rank, (engine, reduced) in prepared.items():
        for at in range(2):  # tries of other worlds in between, for another step, disturb nothing
            attempt(engine, at, when_waiting=True, step=4)
        engine.apply(reduced)
        assert identical(expected[rank], state_of(engine.job))


def test_a_rank_that_leaves_ends_the_step_of_the_others() -> None:
    caught: list[str] = []

    def main(exchange: Exchange) -> None:
        engine = Recipe(Mlp).engine()
        before = state_of(engine.job)
        if exchange.rank == 1:
            raise ZeroDivisionError
        try:
            train(engine, exchange, steps=range(1))
        except WorldError as error:
            caught.append(error.message)
            assert identical(before, state_of(engine.job))

    with pytest.raises(ZeroDivisionError):
        LocalWorld(3).run(main)
    assert caught == ["another rank left"] * 2


# --- what the numbers and the user's code can do ---------------------------------------------------------


def nan_at(step: int) -> Callable[[nn.Module, Batch], LossSum]:
    seen: list[int] = []

    def loss(model: nn.Module, batch: Batch) -> LossSum:
        if model.training and torch.is_grad_enabled():
            seen.append(1)
        bad = float("nan") if len(seen) == step + 1 else 1.0
        found = plain_loss(model, batch)
        return LossSum(found.sum * bad, found.weight)

    return loss


def test_a_loss_that_is_nan_is_told_with_its_step() -> None:
    engine = Recipe(Mlp, loss=nan_at(4)).engine()
    with pytest.raises(JobError, match=r"model\.py: .*NaN or infinite in step 5.*learning rate"):
        train(engine, Alone())
    assert engine.healthy


class InfiniteGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradient: torch.Tensor) -> torch.Tensor:
        return gradient[0] * float("inf")


def infinite(model: nn.Module, batch: Batch) -> LossSum:
    found = plain_loss(model, batch)
    value: torch.Tensor = InfiniteGradient.apply(found.sum)  # type: ignore[no-untyped-call]
    return LossSum(value, found.weight)


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_a_gradient_that_is_not_finite_is_refused_on_every_rank(size: int, reproducible: bool) -> None:
    recipe = Recipe(Mlp, loss=infinite, reproducible=reproducible)
    told: list[str] = []

    def main(exchange: Exchange) -> None:
        engine = recipe.engine()
        before = state_of(engine.job)
        try:
            train(engine, exchange, steps=range(1))
        except JobError as error:
            told.append(error.message)
        assert identical(before, state_of(engine.job))

    LocalWorld(size).run(main)
    assert len(told) == size and all("NaN or infinite in step 1" in each for each in told)


def test_weights_that_sum_to_nothing_are_refused() -> None:
    def weightless(model: nn.Module, batch: Batch) -> LossSum:
        return LossSum(plain_loss(model, batch).sum * 0, 0.0)

    with pytest.raises(JobError, match=r"weights sum to 0\.0 in step 1"):
        train(Recipe(Mlp, loss=weightless).engine(), Alone())


def test_an_error_in_backward_names_the_users_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes out of torch, long after the user's function returned."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    (tmp_path / "own_gradient.py").write_text("""import torch
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        return gradient @ torch.ones(2)
""")
    code = UserCode(tmp_path, tmp_path / "own_gradient.py")
    own = code.needed("Own", "", "").apply  # type: ignore[attr-defined]

    def loss(model: nn.Module, batch: Batch) -> LossSum:
        return plain_loss(nn.Sequential(model, Applied(own)), batch)

    job = Recipe(Mlp, loss=loss).job()
    job.locate = code.locate
    engine = Engine(job, Recipe(Mlp).engine().timeline)
    with pytest.raises(JobError, match=r"RuntimeError in step 1: .*Correct the line") as caught:
        train(engine, Alone())
    assert caught.value.where == "own_gradient.py:8"


class Applied(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def engine_with(change: Callable[[LoadedJob], object], recipe: Recipe | None = None) -> Engine:
    made = (recipe or Recipe(Mlp)).job()
    change(made)
    base = Recipe(Mlp).engine()
    return Engine(made, base.timeline)


def test_a_closure_is_refused() -> None:
    def change(job: LoadedJob) -> None:
        job.optimizer = torch.optim.LBFGS(job.model.parameters())

    with pytest.raises(JobError, match=r"LBFGS .*closure.*Take SGD"):
        engine_with(change)


def test_an_optimizer_over_strangers_is_refused() -> None:
    def change(job: LoadedJob) -> None:
        job.optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3))], 0.1)

    with pytest.raises(JobError, match=r"shape \(3,\) that the model does not"):
        engine_with(change)


def test_a_model_without_anything_to_train_is_refused() -> None:
    with pytest.raises(JobError, match="no parameter to train"):
        engine_with(lambda job: job.model.requires_grad_(False))


class SparseModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3, sparse=True)
        self.dense = nn.Linear(FEATURES, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.dense(x) + self.embedding((x[:, 0] > 0).long())
        return found


@pytest.mark.parametrize("size", [1, 2])
def test_a_sparse_gradient_is_refused(size: int) -> None:
    recipe = Recipe(SparseModel, sgd)
    with pytest.raises(JobError, match=r"embedding\.weight is sparse.*sparse=False"):
        LocalWorld(size).run(lambda exchange: train(recipe.engine(), exchange))


class CountingBuffer(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.get_buffer("calls").add_(1)
        found: torch.Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return found


def test_a_buffer_changed_in_forward_is_refused_and_put_back() -> None:
    job = Recipe(CountingBuffer).job()
    with pytest.raises(JobError, match="forward changes the buffer calls"):
        Engine(job, Recipe().engine().timeline)
    assert job.model.get_buffer("calls").item() == 0


class TwiceNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES)
        self.last = nn.Linear(FEATURES, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.norm(self.norm(x)))
        return found


def test_a_batch_norm_used_twice_is_refused() -> None:
    with pytest.raises(JobError, match="batch norm norm is used 2 times"):
        Recipe(TwiceNormed).engine()


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (replace(NOISY, samples=1), "on a single sample"),
        (replace(NOISY, granule=1), "job.yaml: granule: .* 1 sample at a time"),
        (replace(NOISY, batch=1), "job.yaml: global_batch_size: .* 1 sample at a time"),
    ],
)
def test_batch_norm_over_single_samples_is_refused(recipe: Recipe, told: str) -> None:
    with pytest.raises(JobError, match=told):
        recipe.engine()


class HiddenDropout(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = super().forward(functional.dropout(x, 0.3, training=self.training))  # type: ignore[no-untyped-call]
        return found


def test_random_numbers_drawn_in_forward_turn_granules_on() -> None:
    recipe = Recipe(HiddenDropout, sgd)
    engine = recipe.engine()
    assert engine.job.needs_granules
    alone = recipe.engine()
    train(alone, Alone())

    def main(exchange: Exchange) -> dict[str, torch.Tensor]:
        engine = recipe.engine()
        train(engine, exchange)
        return state_of(engine.job)

    for state in LocalWorld(3).run(main):
        assert difference(state_of(alone.job), state) < 1e-12


def mean_of_weighted(model: nn.Module, batch: Batch) -> LossSum:
    weights = torch.tensor([0.25, 1.0, 3.0], dtype=batch[0].dtype)
    mean = functional.cross_entropy(model(batch[0]), batch[1], weight=weights)
    return LossSum(mean * len(batch[1]), float(len(batch[1])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model", [Mlp, Noisy])
def test_a_mean_that_is_none_is_refused(model: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    with pytest.raises(JobError, match=r"no mean over samples.*Return \(sum, weight\)"):
        Recipe(model, loss=mean_of_weighted, dtype=dtype).engine()


def contrastive(model: nn.Module, batch: Batch) -> LossSum:
    found = functional.normalize(model(batch[0]), dim=1)
    likeness = found @ found.T / 0.1
    same = batch[1].unsqueeze(0) == batch[1].unsqueeze(1)
    each = -(functional.log_softmax(likeness, dim=1) * same).sum(1) / same.sum(1)
    return LossSum(each.sum(), float(len(each)))


def test_a_loss_that_compares_samples_gets_granules() -> None:
    engine = Recipe(Mlp, loss=contrastive).engine()
    assert engine.job.needs_granules
    assert any("compares samples" in note for note in engine.job.notes)


def test_the_checks_leave_no_trace() -> None:
    job = NOISY.job()
    before, generator = state_of(job), torch.get_rng_state()
    Engine(job, NOISY.engine().timeline)
    assert identical(before, state_of(job))
    assert torch.equal(generator, torch.get_rng_state())
    assert job.model.training


def test_shares_that_do_not_sum_to_the_batch_are_a_mistake_of_the_caller() -> None:
    engine = Recipe(Mlp).engine()
    with pytest.raises(ValueError, match="shares"):
        engine.reduce_step(Alone(), engine.timeline.position(0), (23,))


def test_an_optimizer_that_fails_leaves_the_engine_unhealthy() -> None:
    engine = Recipe(Mlp).engine()

    class Broken(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            raise RuntimeError("no")

    engine.job.optimizer = Broken(engine.job.model.parameters(), 0.1)
    with pytest.raises(JobError, match="in the optimizer's step 0: no"):
        train(engine, Alone())
    assert not engine.healthy


# --- evaluation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_evaluations_agree_on_any_split(mode: str) -> None:
    recipe = MODES[mode]

    def main(exchange: Exchange) -> tuple[float, Mapping[str, float], int]:
        engine = recipe.engine()
        found = engine.evaluate(exchange, changing(1, engine.evaluation_units(), exchange.size))
        assert engine.job.model.training
        return found.loss, found.metrics, found.samples

    (alone,) = LocalWorld(1).run(main)
    job = recipe.job()
    job.model.eval()
    with torch.no_grad():
        batch = job.validation.batch(range(37), 0)  # type: ignore[union-attr]
        assert alone[0] == pytest.approx(plain_loss(job.model, batch).sum.item() / 37, rel=1e-12)
        hits = (job.model(batch[0]).argmax(1) == batch[1]).sum().item()
    assert alone[1]["accuracy"] == hits / 37
    assert alone[2] == 37
    for size in (2, 3, 4):
        for found in LocalWorld(size).run(main):
            assert found[0] == pytest.approx(alone[0], rel=1e-12)
            assert found[1] == pytest.approx(alone[1], rel=1e-12)
            if recipe.reproducible:
                assert found == alone


def test_a_loss_that_draws_in_evaluation_says_the_same_on_any_split() -> None:
    def noisy_loss(model: nn.Module, batch: Batch) -> LossSum:
        x, y = batch
        return plain_loss(model, (x + 0.1 * torch.randn_like(x), y))

    def main(exchange: Exchange) -> list[float]:
        engine = Recipe(Mlp, loss=noisy_loss).engine()
        assert engine.job.needs_granules, "the checks see that forward draws"
        torch.manual_seed(exchange.size)
        shares = changing(1, engine.evaluation_units(), exchange.size)
        return [engine.evaluate(exchange, shares).loss for _ in range(2)]

    (alone,) = LocalWorld(1).run(main)
    assert alone[0] == alone[1]
    for found in LocalWorld(3).run(main):
        assert found == pytest.approx(alone, rel=1e-12)


def test_a_broken_evaluation_leaves_the_model_in_training() -> None:
    engine = NOISY.engine()
    before = state_of(engine.job)
    units = engine.evaluation_units()
    with pytest.raises(WorldError):
        engine.evaluate(Breaking(Pretended(), 0, when_waiting=True), (units, 0))
    assert engine.job.model.training
    assert identical(before, state_of(engine.job))


def test_without_held_out_data_there_is_nothing_to_evaluate() -> None:
    engine = replace(NOISY, validation=0).engine()
    assert engine.evaluation_units() == 0
    assert engine.evaluate(Alone(), (0,)).samples == 0


def test_metrics_that_change_their_names_are_refused() -> None:
    engine = Recipe(Mlp).engine()
    engine.computer.largest = 20
    calls: list[int] = []

    def metrics(model: nn.Module, batch: Batch) -> Mapping[str, tuple[float, float]]:
        calls.append(1)
        return {f"metric{len(calls)}": (1.0, 1.0)}

    engine.job.metrics = metrics
    with pytest.raises(JobError, match="Return the same names"):
        engine.evaluate(Alone(), (37,))


def test_what_is_measured_between_steps_sends_nothing() -> None:
    engine = Recipe(Mlp).engine()
    exchange = Breaking(Pretended(), at=1 << 30, when_waiting=True)
    engine.reduce_step(exchange, engine.timeline.position(0), (20, 4))
    issued = exchange.issued
    rounding_digest(engine)
    assert exchange.issued == issued > 0
