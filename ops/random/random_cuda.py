"""Random operators on the device; seeded samples equal the CPU's."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.cuda.kernel.elementwise import elementwise_chain
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.kernel.stream_compaction import compaction_launches
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Argument, Buffer, Chain, View
from .bernoulli import bernoulli
from .bit_generator_cuda import drawn
from .dropout import dropout
from .multinomial import multinomial
from .normal import random_normal, random_normal_like
from .uniform import random_uniform, random_uniform_like


def _line(y: Buffer, number: str) -> str:
    """`number` times `scale` plus `more` as the CPU rounds it: in f64 for such a result, else in f32."""
    if y.dtype == np.float64:
        return f"add64(mul64({number}, scale), more)"
    return f"add(mul(np.float32({number}), np.float32(scale)), np.float32(more))"


@cuda(random_uniform, random_uniform_like)
def uniform_on_device(step: Step) -> Planned:
    """Draw from the uniform distribution on [low, high)."""
    y, given = step.output(), step.attributes
    launches, numbers = drawn(step, y.count, given["seed"])
    named: dict[str, Argument] = {
        "y": y,
        "numbers": numbers,
        "scale": float(given["high"] - given["low"]),
        "more": float(given["low"]),
    }
    return [*launches, per_thread_launch("uniform numbers", y.count, named, f"put_y(y, i, {_line(y, 'numbers[i]')})")]


PAIR = """
    one, other = 2.0 * numbers[2 * j] - 1.0, 2.0 * numbers[2 * j + 1] - 1.0
    square = add64(mul64(one, one), mul64(other, other))
    keep = square < 1.0 and square != 0.0
"""
NORMAL = """
    factor = math.sqrt(-2.0 * math.log(square) / square)
    if 2 * at < wanted:
        put_y(y, 2 * at, FIRST)
    if 2 * at + 1 < wanted:
        put_y(y, 2 * at + 1, SECOND)
"""


@cuda(random_normal, random_normal_like)
def normal_on_device(step: Step) -> Planned:
    """Draw pairs by Marsaglia's polar method; more candidate points are drawn than are ever needed."""
    y, given = step.output(), step.attributes
    pairs = -(-y.count // 2)
    points = math.ceil(pairs * 4 / math.pi + 10 * math.sqrt(pairs)) + 40
    launches, numbers = drawn(step, 2 * points, given["seed"])
    named: dict[str, Argument] = {
        "y": y,
        "numbers": numbers,
        "wanted": y.count,
        "scale": float(given["scale"]),
        "more": float(given["mean"]),
    }
    text = NORMAL.replace("FIRST", _line(y, "(factor * other)")).replace("SECOND", _line(y, "(factor * one)"))
    return [*launches, *compaction_launches(step, "normal numbers", points, named, PAIR, text)[0]]


HAPPENS = """
    chance = np.float64(get_x(x, i))
    if chance != chance:
        wrong[0] = 1
    less = chance if chance <= 0.5 else 1.0 - chance
    happens = numbers[i] > math.exp(math.log(1.0 - max(less, 0.0)))
    put_y(y, i, 1 if happens == (chance <= 0.5) else 0)
"""


@cuda(bernoulli)
def bernoulli_on_device(step: Step) -> Planned:
    """Compare a uniform draw with each probability, or with its complement if that is less."""
    x, y = step.input(0), step.output()
    launches, numbers = drawn(step, x.count, step.attributes["seed"])
    wrong = step.flag("Bernoulli: a probability is NaN")
    return [
        *launches,
        per_thread_launch(
            "elements that happen", x.count, {"x": x, "y": y, "numbers": numbers, "wrong": wrong}, HAPPENS
        ),
    ]


STEPS = """
    highest = -np.inf
    for j in range(classes):
        highest = max(highest, np.float64(get_x(x, i * classes + j)))
    total = 0.0
    for j in range(classes):
        total += math.exp(np.float64(get_x(x, i * classes + j)) - highest)
        steps[i * classes + j] = total
"""
CHOICE = """
    row = i // samples
    low, high = np.int64(0), np.int64(classes)
    last = steps[row * classes + classes - 1]
    while low < high:
        half = (low + high) // 2
        if steps[row * classes + half] / last <= numbers[i]:
            low = half + 1
        else:
            high = half
    put_y(y, i, low)
"""


@cuda(multinomial)
def multinomial_on_device(step: Step) -> Planned:
    """Accumulate each row's probabilities, then find the first sum above each draw."""
    x, y = step.input(0), step.output()
    rows, classes = x.shape
    launches, numbers = drawn(step, y.count, step.attributes["seed"])
    steps = step.temporary(np.float64, (rows, classes))
    named: dict[str, Argument] = {"steps": steps, "classes": classes}
    return [
        *launches,
        per_thread_launch("sums of chances", rows, {**named, "x": x}, STEPS),
        per_thread_launch(
            "classes by chance", y.count, {**named, "y": y, "numbers": numbers, "samples": y.shape[1]}, CHOICE
        ),
    ]


def _same(x: float) -> float:
    return x


def _kept(compaction_launches: bool) -> bool:
    return compaction_launches


DROP = "put_y(y, i, NUMBER(1 if numbers[i] >= chance else 0) * get_x(x, i) * NUMBER(scale))"


@cuda(dropout)
def dropout_on_device(step: Step) -> Planned:
    """Return the input and a mask of ones outside of training."""
    x, ratio, training = step.input(0), step.constant(1), step.constant(2)
    if (step.optional_input(1) is not None and ratio is None) or (
        step.optional_input(2) is not None and training is None
    ):
        return "its training mode is not a constant"
    chance = 0.5 if ratio is None else float(ratio.reshape(()))
    if training is not None and bool(training.reshape(())[()]) and chance != 0:
        return _dropped(step, chance) if 0 <= chance < 1 else "the dropout ratio is not in [0, 1)"
    if not step.is_used(1):
        return View(x)
    launches: list[Chain] = [elementwise_chain(_kept, [step.constant_buffer(np.ones((), bool))], step.output(1))]
    return [
        *launches,
        *([Chain(elementwise_chain(_same, [x], step.output()).steps, step.output())] if step.is_used(0) else []),
    ]


def _dropped(step: Step, chance: float) -> Planned:
    x = step.input(0)
    launches, numbers = drawn(step, x.count, step.attributes["seed"])
    named: dict[str, Argument] = {"x": x, "numbers": numbers, "chance": chance, "scale": 1 / (1 - chance)}
    if step.is_used(0):
        number = "np.float64" if x.dtype == np.float64 else "np.float32"
        launches.append(
            per_thread_launch(
                "elements that are left", x.count, {**named, "y": step.output()}, DROP.replace("NUMBER", number)
            )
        )
    if step.is_used(1):
        launches.append(
            per_thread_launch(
                "whether elements are left",
                x.count,
                {**named, "mask": step.output(1)},
                "put_mask(mask, i, numbers[i] >= chance)",
            )
        )
    return launches
