"""Dropout on the device, outside of training; what draws random numbers stays on the CPU, where a seed gives the same ones everywhere."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.place import Planned, Step, cuda, on_cpu
from ...runtime.cuda.zip import Chain, mapped
from ...runtime.launch import Buffer, View
from .bernoulli import bernoulli
from .dropout import dropout
from .multinomial import multinomial
from .normal import random_normal, random_normal_like
from .uniform import random_uniform, random_uniform_like

on_cpu(
    "its random numbers come from one stream, each after the one before", bernoulli, multinomial, random_normal, random_normal_like, random_uniform,
    random_uniform_like,
)


def _same(x: float) -> float:
    return x


def _kept(kept: bool) -> bool:
    return kept


@cuda(dropout)
def dropout_on_device(step: Step) -> Planned:
    """The input itself, and a mask of ones."""
    x = step.input(0)
    ratio, training = step.constant(1), step.constant(2)
    if step.given(2) is not None and (training is None or bool(training.reshape(())[()])) and (ratio is None or float(ratio.reshape(())) != 0):
        return "it draws random numbers"
    if not step.wanted(1):
        return View(x)
    mask: Buffer = step.output(1)
    launches = [mapped(_kept, [step.held(np.ones((), bool))], mask)]
    return [*launches, *([Chain(mapped(_same, [x], step.output()).steps, step.output())] if step.wanted(0) else [])]
