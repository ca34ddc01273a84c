"""A model that does not fit is refused before its first step, with both numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from daisychain.core.sizes import in_words, too_big
from daisychain.errors import JobMemoryError
from daisychain.trainer.engine.footprint import Footprint, footprint, optimizer_bytes, refuse_too_big, size_of
from daisychain.trainer.jobs.model_size import made
from support.engine_jobs import Recipe, adam, sgd
from unit.trainer.conftest import MakePython

optim = torch.optim
Make = Callable[[list[nn.Parameter]], optim.Optimizer]


def two_groups(own: list[nn.Parameter]) -> optim.Optimizer:
    return optim.SGD([{"params": own[:1], "momentum": 0.9}, {"params": own[1:], "momentum": 0.0}], 0.1)


OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda own: optim.SGD(own, 0.1),
    "momentum": lambda own: optim.SGD(own, 0.1, momentum=0.9),
    "adam": optim.Adam,
    "fused adam": lambda own: optim.Adam(own, fused=True),
    "amsgrad": lambda own: optim.AdamW(own, amsgrad=True),
    "rmsprop": lambda own: optim.RMSprop(own, momentum=0.9, centered=True),
    "adagrad": optim.Adagrad,
    "nadam": optim.NAdam,
    "two groups": two_groups,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_an_optimizer_will_keep_is_known_before_its_first_step(name: str) -> None:
    model = nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 5))
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    before = [each.detach().clone() for each in model.parameters()]
    told = optimizer_bytes(optimizer)
    if name != "adagrad":  # makes its own at once
        assert not optimizer.state
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    model(torch.ones(4, 30)).sum().backward()
    optimizer.step()
    kept = [each for state in optimizer.state.values() for each in state.values()]
    assert told == size_of(each for each in kept if isinstance(each, torch.Tensor))


def test_an_optimizer_behind_a_schedule_is_counted_without_a_step() -> None:
    model = nn.Linear(30, 20)
    optimizer = optim.Adam(model.parameters())
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)
    assert optimizer_bytes(optimizer) == pytest.approx(2 * 4 * 620, abs=16)
    assert schedule.last_epoch == 0


class Own(optim.SGD):
    pass


@pytest.mark.parametrize(
    "make", [optim.Adafactor, lambda own: Own(own, 0.1)], ids=["reads numbers", "the user's own"]
)
def test_an_optimizer_that_only_a_real_step_would_tell_of_is_not_guessed(make: Make) -> None:
    assert optimizer_bytes(make(list(nn.Linear(3, 3).parameters()))) is None


def test_the_model_its_gradients_and_its_optimizer_are_counted() -> None:
    job = Recipe(optimizer=adam).job()
    numbers = 8 * sum(each.numel() for each in job.model.parameters())
    found = footprint(job)
    assert (found.model, found.gradients, found.held) == (numbers, 2 * numbers, numbers)
    assert found.optimizer == pytest.approx(2 * numbers, abs=64)
    assert found.to_come == found.total - numbers


def test_frozen_parameters_have_no_gradient() -> None:
    job = Recipe(optimizer=sgd).job()
    next(job.model.parameters()).requires_grad_(False)
    found = footprint(job)
    assert found.gradients < 2 * found.model


GB = 10**9


def test_a_model_that_does_not_fit_is_refused_with_both_numbers() -> None:
    job = Recipe(optimizer=adam).job()
    found = Footprint(model=620 * 10**6, gradients=1240 * 10**6, optimizer=1240 * 10**6, held=620 * 10**6)
    with pytest.raises(JobMemoryError) as caught:
        refuse_too_big(job, found, 1280 * 10**6)
    assert "needs 3.1 GB, has 1.9 GB: every node holds the whole model" in caught.value.message
    assert "model 0.6 GB, gradients 1.2 GB, AdamW 1.2 GB" in caught.value.message
    refuse_too_big(job, found, found.to_come)


def test_what_is_not_known_of_an_optimizer_is_said() -> None:
    found = Footprint(model=2 * GB, gradients=4 * GB, optimizer=None, held=2 * GB)
    with pytest.raises(JobMemoryError, match=r"needs at least 6\.0 GB, has 3\.0 GB"):
        refuse_too_big(Recipe().job(), found, GB)


@pytest.mark.parametrize(
    ("size", "text"),
    [(3_100_000_000, "3.1 GB"), (100_000_000, "0.1 GB"), (99_900_000, "99.9 MB"), (0, "0.0 MB")],
)
def test_amounts_are_told_with_a_unit(size: int, text: str) -> None:
    assert in_words(size) == text


def test_what_fits_exactly_is_not_too_big() -> None:
    assert too_big(GB, GB) == ""
    assert too_big(GB + 1, GB) != ""


# --- models that cannot even be made ---------------------------------------------------------------------


def on_meta() -> bool:
    return torch.empty(0).device.type == "meta"


def test_a_model_that_memory_does_not_suffice_to_make_is_told_with_both_numbers() -> None:
    def make() -> nn.Module:
        if not on_meta():
            raise MemoryError
        return nn.Linear(100_000, 10_000, bias=False)

    with pytest.raises(JobMemoryError, match=r"needs at least 12\.0 GB, has 3\.0 GB: every node holds"):
        made("net.py: model", make, torch.float32, 3 * GB)
    with pytest.raises(JobMemoryError, match=r"needs at least 24\.0 GB"):
        made("net.py: model", make, torch.float64, 3 * GB)


def test_code_that_cannot_be_run_without_memory_keeps_its_own_error() -> None:
    def make() -> nn.Module:
        if on_meta():
            torch.ones(3).sum().item()  # has no value there
        raise MemoryError("18 GB")

    with pytest.raises(MemoryError, match="18 GB"):
        made("net.py: model", make, torch.float32, GB)


def test_a_model_that_would_fit_keeps_its_own_error() -> None:
    """Something else took the memory: the model is not to blame."""

    def make() -> nn.Module:
        if on_meta():
            return nn.Linear(3, 3)
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(RuntimeError, match="alloc_cpu"):
        made("net.py: model", make, torch.float32, GB)


def test_an_error_of_another_kind_is_not_tried_again() -> None:
    calls: list[int] = []

    def make() -> nn.Module:
        calls.append(1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        made("net.py: model", make, torch.float32, GB)
    assert calls == [1]


def test_a_job_whose_model_cannot_be_made_names_its_file(make_python: MakePython) -> None:
    code = """
        import torch
        from torch import nn

        def model():
            if torch.empty(0).device.type != "meta":
                raise MemoryError
            return nn.Linear(200_000, 20_000)

        def dataset(split):
            return torch.zeros(4, 2), torch.zeros(4, 1)

        def loss(model, batch):
            return model(batch[0]).mean()
    """
    with pytest.raises(JobMemoryError, match=r"needs at least 48\.0 GB, has 8\.6 GB") as caught:
        make_python(code)
    assert caught.value.where == "net.py: model"
