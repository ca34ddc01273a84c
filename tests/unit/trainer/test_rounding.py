"""The digest that tells machines apart: it covers what a step computes, and leaves no trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from daisychain.trainer.engine.rounding import rounding_digest
from support.engine_jobs import Cnn, Mlp, Noisy, Optimizer, Recipe, adam, identical, sgd, state_of


class Rounded(torch.autograd.Function):
    """The identity, and a gradient that is one rounding off: as another machine would have it."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * (1 + 2e-16)


class RoundsOtherwise(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = Rounded.apply(super().forward(x))  # type: ignore[no-untyped-call]
        return found


class OtherAdam(torch.optim.AdamW):
    """As AdamW is where its sums are fused, say; one of torch's own for all that anybody can see."""

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(1 + 2e-16)


OtherAdam.__module__ = "torch.optim.adamw"


class NoCopy(torch.optim.SGD):
    """A user's own optimizer, which keeps what a copy would lack."""

    def __init__(self, parameters: object) -> None:
        super().__init__(parameters, 0.1)  # type: ignore[arg-type]
        self.own = {"calls": 0}

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.own["calls"] += 1
        super().step()


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("optimizer", [adam, sgd])
def test_it_is_the_same_each_time_and_leaves_no_trace(optimizer: Optimizer, reproducible: bool) -> None:
    recipe = Recipe(Noisy, optimizer, granules=True, reproducible=reproducible, clip=0.1)
    engine = recipe.engine()
    before, generator = state_of(engine.job), torch.get_rng_state()
    digest = rounding_digest(engine)
    assert len(digest) == 16
    assert identical(before, state_of(engine.job))
    assert not engine.job.optimizer.state
    assert torch.equal(generator, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in engine.job.model.parameters())
    assert digest == rounding_digest(engine) == rounding_digest(recipe.engine())


def test_a_gradient_that_is_one_rounding_off_has_another_digest() -> None:
    assert rounding_digest(Recipe(Mlp).engine()) != rounding_digest(Recipe(RoundsOtherwise).engine())


def test_an_optimizer_that_rounds_otherwise_has_another_digest() -> None:
    def other(model: nn.Module) -> torch.optim.Optimizer:
        return OtherAdam(model.parameters(), 1e-2)

    assert rounding_digest(Recipe(Mlp, adam).engine()) != rounding_digest(Recipe(Mlp, other).engine())


def test_a_whole_granule_is_tried_whether_or_not_the_model_needs_granules() -> None:
    recipe = Recipe(Cnn)
    assert rounding_digest(recipe.engine()) == rounding_digest(replace(recipe, granules=True).engine())
    assert rounding_digest(recipe.engine()) != rounding_digest(replace(recipe, granule=4).engine())


def test_a_users_own_optimizer_is_left_alone() -> None:
    engine = Recipe(Mlp, lambda model: NoCopy(model.parameters())).engine()
    rounding_digest(engine)
    assert isinstance(engine.job.optimizer, NoCopy)
    assert engine.job.optimizer.own == {"calls": 0}
