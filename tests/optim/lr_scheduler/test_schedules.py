"""Schedules against torch's and transformers': learning rates of 50 steps, restored state, and errors."""

import copy
import inspect

import candle_convert as cc
import pytest
import torch
import transformers
from candle_convert import optim
from candle_convert.optim.lr_scheduler import LRScheduler
from candle_convert.optim.lr_scheduler.averaging import SWALR
from candle_convert.tests.builders.nested_values import changed, paths
from candle_convert.training.checkpoint.nested_file import load_nested, save_nested

ours, theirs = optim.lr_scheduler, torch.optim.lr_scheduler
CASES = {
    "step": lambda m, o: m.StepLR(o, 7, 0.5),
    "multi step": lambda m, o: m.MultiStepLR(o, [3, 10, 10, 30], 0.5),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.9),
    "constant": lambda m, o: m.ConstantLR(o, 0.25, 6),
    "linear": lambda m, o: m.LinearLR(o, 0.2, 0.9, 12),
    "polynomial": lambda m, o: m.PolynomialLR(o, 30, 2.0),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 8, 0.01),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "even restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 6),
    "lambda": lambda m, o: m.LambdaLR(o, [lambda step: 0.95**step, lambda step: 1 / (1 + step)]),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda step: 0.95),
    "one cycle": lambda m, o: m.OneCycleLR(o, 0.5, 60),
    "three phases": lambda m, o: m.OneCycleLR(
        o, [0.5, 0.2], epochs=6, steps_per_epoch=10, three_phase=True, anneal_strategy="linear", pct_start=0.4
    ),
    "cyclic": lambda m, o: m.CyclicLR(o, 0.01, [0.1, 0.2], 7, 4),
    "halved cycles": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 5, mode="triangular2", base_momentum=0.7),
    "shrinking cycles": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 5, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "own cycles": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 5, scale_fn=lambda n: 1 / n),
    "sequential": lambda m, o: m.SequentialLR(
        o, [m.LinearLR(o, 0.1, 1.0, 10), m.CosineAnnealingLR(o, 20), m.ExponentialLR(o, 0.9)], [10, 35]
    ),
    "chained": lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.1, 5), m.ExponentialLR(o, 0.9)]),
}

SCHEDULES = {
    **CASES,
    "plateau": lambda m, o: m.ReduceLROnPlateau(o, patience=0),
    "averages": lambda m, o: SWALR(o, 0.3),
}


def optimizer(m, made):
    first, second = m.ones(2, requires_grad=True), m.ones(2, requires_grad=True)
    return made.AdamW([{"params": [first]}, {"params": [second], "lr": 0.05}], lr=0.1)


def seen(o):
    return [(group["lr"], group["betas"][0]) for group in o.param_groups]


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("name", CASES)
def test_fifty_steps(name):
    one, other = optimizer(cc, optim), optimizer(torch, torch.optim)
    schedule, their_schedule = CASES[name](ours, one), CASES[name](theirs, other)
    found, expected = [seen(one)], [seen(other)]
    for _ in range(50):
        schedule.step()
        their_schedule.step()
        found.append(seen(one))
        expected.append(seen(other))
    for step, (mine, their) in enumerate(zip(found, expected, strict=True)):
        for pair, their_pair in zip(mine, their, strict=True):
            assert pair == pytest.approx(their_pair, rel=1e-9, abs=1e-12), step
    assert schedule.get_last_lr() == [group["lr"] for group in one.param_groups]


@pytest.mark.parametrize("name", CASES)
def test_restored_state(name):
    one = optimizer(cc, optim)
    schedule = CASES[name](ours, one)
    for _ in range(12):
        schedule.step()
    state, of_optimizer = schedule.state_dict(), one.state_dict()
    expected = []
    for _ in range(30):
        schedule.step()
        expected.append(seen(one))
    two = optimizer(cc, optim)
    again = CASES[name](ours, two)
    again.load_state_dict(state)
    two.load_state_dict(of_optimizer)
    found = []
    for _ in range(30):
        again.step()
        found.append(seen(two))
    assert found == expected


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "max", "threshold_mode": "abs", "threshold": 0.02}, {"cooldown": 3, "min_lr": [0.02, 0.01]},
     {"mode": "max"}, {"threshold_mode": "abs", "threshold": 0.1}],
)  # fmt: skip
def test_plateau(options):
    one, other = optimizer(cc, optim), optimizer(torch, torch.optim)
    schedule = ours.ReduceLROnPlateau(one, patience=2, factor=0.5, **options)
    their_schedule = theirs.ReduceLROnPlateau(other, patience=2, factor=0.5, **options)
    for step in range(40):
        metric = 1 / (1 + min(step, 12)) + 0.03 * (step % 3)
        schedule.step(cc.tensor(metric))
        their_schedule.step(torch.tensor(metric))
        assert [rate for rate, _ in seen(one)] == pytest.approx([rate for rate, _ in seen(other)]), step


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_constant_schedule_with_warmup", (5,)),
        ("get_linear_schedule_with_warmup", (5, 30)),
        ("get_cosine_schedule_with_warmup", (5, 30)),
        ("get_cosine_schedule_with_warmup", (0, 30, 1.5)),
    ],
)
def test_transformers_schedules(name, arguments):
    one, other = optimizer(cc, optim), optimizer(torch, torch.optim)
    schedule, their_schedule = getattr(ours, name)(one, *arguments), getattr(transformers, name)(other, *arguments)
    for step in range(35):
        for pair, their_pair in zip(seen(one), seen(other), strict=True):
            assert pair == pytest.approx(their_pair, rel=1e-9, abs=1e-12), step
        schedule.step()
        their_schedule.step()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda o: ours.StepLR(None, 3), "NoneType"),
        (lambda o: ours.StepLR(o, 0), "step_size is 0"),
        (lambda o: ours.LinearLR(o, 2.0), "start_factor"),
        (lambda o: ours.OneCycleLR(o, 0.1), "number of steps"),
        (lambda o: ours.OneCycleLR(o, [0.1], 5), "max_lr has 1"),
        (lambda o: ours.OneCycleLR(o, 0.1, 5, warm=3), "warm"),
        (lambda o: ours.OneCycleLR(optim.Adagrad([cc.ones(1, requires_grad=True)]), 0.1, 5), "Adagrad"),
        (lambda o: ours.SequentialLR(o, [ours.StepLR(o, 3)], [4]), "1 milestone of"),
        (lambda o: ours.ReduceLROnPlateau(o, factor=1.5), "factor is 1.5"),
        (lambda o: ours.ExponentialLR(o, 0.9, last_epoch=3), "initial_lr"),
    ],
)  # fmt: skip
def test_errors(make, why):
    with pytest.raises(cc.UsageError, match=why):
        make(optimizer(cc, optim))


def test_all_schedules_are_here():
    made = {type(make(ours, optimizer(cc, optim))) for make in SCHEDULES.values()}
    known = {each for _, each in inspect.getmembers(ours, inspect.isclass) if issubclass(each, LRScheduler)}
    assert known - {LRScheduler} == made - {SWALR}


@pytest.mark.parametrize("steps", [0, 1, 12, 55])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_go_on_from_a_file(tmp_path, name, steps):
    arguments = (1.0,) if name == "plateau" else ()
    one, two = optimizer(cc, optim), optimizer(cc, optim)
    schedule, again = SCHEDULES[name](ours, one), SCHEDULES[name](ours, two)
    for _ in range(steps):
        schedule.step(*arguments)
    save_nested({"schedule": schedule.state_dict(), "optimizer": one.state_dict()}, tmp_path / "a.ckpt")
    state = load_nested(tmp_path / "a.ckpt")
    two.load_state_dict(state["optimizer"])
    again.load_state_dict(state["schedule"])
    for _ in range(5):
        schedule.step(*arguments)
        again.step(*arguments)
        assert seen(one) == seen(two)


def test_the_state_of_a_schedule_that_is_over():
    schedule, again = (ours.OneCycleLR(optimizer(cc, optim), 0.1, 3) for _ in range(2))
    for _ in range(3):
        schedule.step()
    again.load_state_dict(schedule.state_dict())
    assert again.get_last_lr() == schedule.get_last_lr()
    with pytest.raises(cc.UsageError, match="no more steps"):
        again.step()


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_take_no_other_kinds(name):
    schedule = SCHEDULES[name](ours, optimizer(cc, optim))
    state = copy.deepcopy(schedule.state_dict())
    for place in paths(state):
        for value in ([None], {"a": 1}, object()):
            with pytest.raises(cc.UsageError, match="saved state"):
                schedule.load_state_dict(changed(state, place, value))
    assert schedule.state_dict() == state
