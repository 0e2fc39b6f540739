"""Gradients of Fourier transforms: the adjoint of a transform is the other transform, times its length."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.domain import CANDLE
from ...rules.expression import Term
from ...signal.dft import dft, stft
from ...signal.frames import frames, overlap_add
from ..gradient_rule import Step, differentiated, differentiated_as


@differentiated(dft)
def _dft(step: Step) -> list[Term | None]:
    x, g, inverse, onesided = step.input(0), step.grad, step.attributes["inverse"], step.attributes["onesided"]
    axis = step.known(2)
    along = (-2 if axis is None else int(axis.reshape(()))) % x.axes
    count, bins = x.lengths[along], g.lengths[along]
    given = step.known(1)
    asked = None if given is None else int(given.reshape(()))
    length = asked or (2 * (count - 1) if inverse and onesided else count)
    at = step.integers(along)
    if not inverse:
        whole = _lengthened(g, along, length)
        found = whole.call("DFT", None, at, inverse=1) * float(length)
    elif not onesided:
        found = g.call("DFT", None, at) * (1 / length)
    else:
        found = g.call("DFT", None, at, onesided=1) * (1 / length)
        half = bins // 2 + 1
        weights = np.full(half, 2.0)
        weights[0] = 1
        if length % 2 == 0:
            weights[-1] = 1
        found = found * found.constant(weights.reshape(-1, *(1,) * (x.axes - 1 - along)), x.dtype.as_numpy())
    found = _lengthened(found, along, count)
    return [found if x.lengths[-1] == 2 else found.part(x.axes - 1, 0, 1)]


def _lengthened(term: Term, axis: int, length: int) -> Term:
    """As long along an axis, with zeros after the end or without what is too much."""
    have = term.lengths[axis]
    if have >= length:
        return term if have == length else term.part(axis, 0, length)
    return term.call("Pad", term.integers([0, length - have]), None, term.integers([axis]))


@differentiated_as(stft)
def _stft(step: Step) -> list[Term | None]:
    """Frames that are gathered, times the window, transformed."""
    signal, window = step.input(0), step.x[2] if len(step.x) > 2 else None
    hop, given = step.known(1), step.known(3)
    assert hop is not None
    samples = signal.lengths[1]
    length = int(given.reshape(())) if given is not None else window.lengths[0] if window is not None else samples
    starts = np.arange(0, samples - length + 1, int(hop.reshape(())))
    frames = signal.call("Gather", step.integers((starts[:, None] + np.arange(length)).tolist()), axis=1)
    if window is not None:
        frames = frames * window.unsqueezed(1)
    return [frames.call("DFT", None, step.integers(2), onesided=step.attributes["onesided"])]


@differentiated(frames)
def _frames(step: Step) -> list[Term | None]:
    samples = step.input(0).lengths[1]
    return [step.grad.calls("OverlapAdd", domain=CANDLE, hop=step.attributes["hop"], samples=samples)[0]]


@differentiated(overlap_add)
def _overlap_add(step: Step) -> list[Term | None]:
    """The frames of the gradient, without what follows the last one."""
    count, length = step.input(0).lengths[1:]
    hop = step.attributes["hop"]
    signal = step.grad.part(1, 0, hop * (count - 1) + length)
    return [signal.calls("Frames", domain=CANDLE, length=length, hop=hop)[0]]
