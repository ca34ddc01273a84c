"""The training state as one unit: what comes next, what is the best, what travels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from daisychain.core.ids import RunId
from daisychain.errors import JobError, ProtocolError
from daisychain.trainer.engine.engine import Engine
from daisychain.trainer.engine.evaluation import Evaluation
from daisychain.trainer.engine.exchange import Alone
from daisychain.trainer.engine.timeline import Timeline
from daisychain.trainer.jobs.loaded import LoadedJob
from daisychain.trainer.state.sketch import differ
from daisychain.trainer.state.training_state import Action, TrainingState
from daisychain.trainer.state.trees import pack, unpack
from support.plans import generation

CODE = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

def dataset(split):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(16, 3, generator=generator)
    return inputs, inputs.sum(dim=1, keepdim=True)

def loss(model, batch):
    return ((model(batch[0]) - batch[1]) ** 2).mean()

def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=1e-2)

def schedule(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2)
"""

RUN = RunId("0" * 16 + "-1")
Make = Callable[..., LoadedJob]


def state_of(make_python: Make, more: str = "", run: RunId = RUN, code: str = CODE) -> TrainingState:
    job = make_python(code, "evaluate_every_steps: 3\n" + more)
    return TrainingState(run, Engine(job, Timeline.of(job.spec, len(job.train), job.validation is not None)))


def step(state: TrainingState) -> None:
    engine = state.engine
    position = engine.timeline.position(state.step)
    state.commit_step(engine.reduce_step(Alone(), position, (engine.units(position),)), generation())


def evaluated(loss: float) -> Evaluation:
    return Evaluation(loss, {"accuracy": 1 - loss}, 16)


def passed(donor: TrainingState, receiver: TrainingState) -> None:
    packed = donor.pack()
    receiver.unpack(packed.header, packed.payload)


def test_what_comes_next_is_a_function_of_the_committed_counts(make_python: Make) -> None:
    state, seen = state_of(make_python), []
    while (action := state.next()) is not Action.FINISH:
        seen.append(action.value[0])
        if action is Action.STEP:
            step(state)
        else:
            state.commit_evaluation(evaluated(0.5), generation())
    assert "".join(seen) == "sssese"
    assert (state.step, state.tick) == (4, 6)


def test_early_stopping_ends_after_as_many_evaluations_without_a_better_loss(make_python: Make) -> None:
    state = state_of(make_python, "early_stopping: 2\n")
    for loss, stopped in ((0.5, False), (0.6, False), (0.4, False), (0.4, False), (float("nan"), True)):
        state.commit_evaluation(evaluated(loss), generation())
        assert state.stopped_early is stopped
    assert state.next() is Action.FINISH


def test_the_best_model_is_kept_and_is_the_result(make_python: Make) -> None:
    state = state_of(make_python, "keep_best: true\n")
    step(state)
    state.commit_evaluation(evaluated(0.3), generation())
    best = {name: tensor.clone() for name, tensor in state.engine.job.model.state_dict().items()}
    step(state)
    state.commit_evaluation(evaluated(0.9), generation())
    result = state.result()
    assert (result.step, result.evaluation.loss) == (1, 0.3)
    assert all(torch.equal(result.tensors[name], best[name]) for name in best)


@pytest.mark.parametrize("more", ["", "reproducible: true\n", "keep_best: true\n"])
def test_a_receiver_goes_on_to_the_bit_like_its_donor(make_python: Make, more: str) -> None:
    donor, receiver = state_of(make_python, more), state_of(make_python, more)
    for _ in range(2):
        step(donor)
    donor.commit_evaluation(evaluated(0.25), generation())
    step(receiver)
    passed(donor, receiver)
    assert receiver.counters == donor.counters
    assert receiver.sketch() == donor.sketch()
    assert receiver.pack().header == donor.pack().header
    step(donor)
    step(receiver)
    assert torch.equal(receiver.pack().payload, donor.pack().payload)
    assert receiver.digest() == donor.digest()
    assert bool(donor.digest()) is ("reproducible" in more)
    assert (receiver.best is None) is (donor.best is None)


def test_a_schedule_that_waits_for_a_plateau_goes_on_where_the_donor_s_is(make_python: Make) -> None:
    code = CODE.replace("StepLR(optimizer, 2)", "ReduceLROnPlateau(optimizer, factor=0.5, patience=1)")
    donor, receiver = state_of(make_python, code=code), state_of(make_python, code=code)
    for loss in (0.5, 0.6):
        step(donor)
        donor.commit_evaluation(evaluated(loss), generation())
    passed(donor, receiver)
    for state in (donor, receiver):
        rates = [state.engine.job.optimizer.param_groups[0]["lr"]]
        step(state)
        rates.append(state.engine.job.optimizer.param_groups[0]["lr"])
        state.commit_evaluation(evaluated(0.7), generation())
        rates.append(state.engine.job.optimizer.param_groups[0]["lr"])
        assert rates == [1e-2, 1e-2, 5e-3], "it falls at the second evaluation in a row without a better loss"
    assert torch.equal(receiver.pack().payload, donor.pack().payload)
    assert receiver.pack().header == donor.pack().header


def test_a_schedule_that_fails_leaves_a_state_that_nobody_takes(make_python: Make) -> None:
    code = CODE.replace("return torch.optim.lr_scheduler.StepLR(optimizer, 2)", """
    class Broken(torch.optim.lr_scheduler.ReduceLROnPlateau):
        def step(self, metrics):
            raise RuntimeError(f"no {metrics}")
    return Broken(optimizer)""")  # fmt: skip
    state = state_of(make_python, code=code)
    with pytest.raises(JobError, match=r"in the schedule after an evaluation: no 0\.5"):
        state.commit_evaluation(evaluated(0.5), generation())
    assert not state.healed


NORMED = CODE.replace("nn.Tanh()", "nn.BatchNorm1d(4)")


def scale_parameter(state: TrainingState) -> None:
    list(state.engine.job.model.parameters())[-2].mul_(1 + 1e-3)


def scale_moment(state: TrainingState) -> None:
    """The second moment of one parameter: tiny beside the count of steps that Adam keeps with it."""
    first = next(state.engine.job.model.parameters())
    state.engine.job.optimizer.state[first]["exp_avg_sq"].mul_(1 + 1e-3)


def scale_buffer(state: TrainingState) -> None:
    next(buffer for name, buffer in state.engine.job.model.named_buffers() if "mean" in name).mul_(1 + 1e-3)


def scale_rate(state: TrainingState) -> None:
    state.engine.job.optimizer.param_groups[0]["lr"] *= 1 + 1e-3


def scale_best(state: TrainingState) -> None:
    assert state.best is not None
    next(iter(state.best.tensors.values())).mul_(1 + 1e-3)


@pytest.mark.parametrize("spoil", [scale_parameter, scale_moment, scale_buffer, scale_rate, scale_best])
def test_a_thousandth_more_in_any_part_of_the_state_is_seen(
    make_python: Make, spoil: Callable[[TrainingState], None]
) -> None:
    one, other = (state_of(make_python, "keep_best: true\n", code=NORMED) for _ in range(2))
    for state in (one, other):
        step(state)
        state.commit_evaluation(evaluated(0.25), generation())
    assert one.sketch() == other.sketch()
    with torch.no_grad():
        spoil(other)
    assert not differ(one.sketch(), one.sketch(), one.tolerance.unlike)
    assert differ(one.sketch(), other.sketch(), one.tolerance.unlike)


@pytest.mark.parametrize("more", ["", "reproducible: true\n"])
def test_that_machines_rounded_differently_travels_with_the_state_and_is_no_part_of_its_bits(
    make_python: Make, more: str
) -> None:
    donor, receiver = state_of(make_python, more), state_of(make_python, more)
    donor.rounded_apart = True
    assert receiver.digest() == donor.digest()
    passed(donor, receiver)
    assert receiver.rounded_apart


def test_another_run_s_state_is_refused_and_leaves_the_model(make_python: Make) -> None:
    donor, receiver = state_of(make_python, run=RunId("1" * 16 + "-1")), state_of(make_python)
    step(donor)
    before = receiver.sketch()
    with pytest.raises(ProtocolError, match="belongs to run"):
        passed(donor, receiver)
    assert receiver.sketch() == before
    assert not receiver.healed, "until it holds a whole state again"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tree: tree.pop("optimizer"),
        lambda tree: tree.update(step=-1),
        lambda tree: tree.update(step=True),
        lambda tree: tree.update(evaluations="3"),
        lambda tree: tree["model"].pop("0.weight"),
        lambda tree: tree["model"].update({"0.weight": torch.ones(2, 2)}),
        lambda tree: tree["model"].update({"0.weight": torch.ones(4, 3, dtype=torch.float64)}),
        lambda tree: tree.update(optimizer={"state": {}, "param_groups": []}),
        lambda tree: tree.update(best={"step": 1}),
        lambda tree: tree.update(last={"loss": 1.0, "metrics": [], "samples": 1}),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_counts_as_not_healed(
    make_python: Make, spoil: Callable[[dict[str, object]], object]
) -> None:
    donor, receiver = state_of(make_python), state_of(make_python)
    step(donor)
    packed = donor.pack()
    tree = unpack(packed.header, packed.payload)
    spoil(tree)
    spoilt = pack(tree)
    with pytest.raises(ProtocolError, match="does not fit"):
        receiver.unpack(spoilt.header, spoilt.payload)
    assert not receiver.healed
    passed(donor, receiver)
    assert receiver.healed


def test_a_model_that_is_not_finite_has_a_sketch_that_is_not(make_python: Make) -> None:
    state = state_of(make_python)
    with torch.no_grad():
        next(state.engine.job.model.parameters()).fill_(float("nan"))
    assert any(number != number for number in state.sketch())


def test_layouts_tell_models_apart(make_python: Make) -> None:
    one, same = state_of(make_python), state_of(make_python)
    assert one.layout() == same.layout()
    job = make_python(CODE.replace("(3, 4)", "(3, 5)").replace("(4, 1)", "(5, 1)"))
    wider = TrainingState(RUN, Engine(job, one.engine.timeline))
    assert wider.layout() != one.layout()
