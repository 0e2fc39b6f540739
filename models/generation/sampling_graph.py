"""Sampling on the device: the steps of `Sampler` as a graph, so that only one token per sequence is transferred."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Graph, Value
from ...runtime.session import Session
from ...runtime.tensor.dtype import F32, F64, I64
from .sampling import Sampling, not_finite, recent_tokens

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

FAILED = -1
"""Token of a row whose largest logit is not finite."""


def sampling_graph(sampling: Sampling, vocabulary: int) -> Graph:
    """A graph from logits f32 [batch, length, at least `vocabulary`], recent tokens int64 [batch, count] (with a repeat
    penalty) and random numbers f64 [batch, 1] (unless greedy) to the next tokens int64 [batch, 1] at the last
    position."""
    graph = Graph(name="sampling")
    build = Builder(graph)

    def fed(name: str, dtype: Any, *shape: Any) -> Value:
        value = Value(name, dtype, shape)
        graph.inputs.append(value)
        graph.values[name] = value
        return value

    def whole(*numbers: int) -> Value:
        return build.constant(list(numbers))

    x = fed("logits", F32, "batch", "length", None)
    x = build.add("Squeeze", [build.add("Slice", [x, whole(-1), whole(1 << 40), whole(1)]), whole(1)])
    x = build.add("Slice", [x, whole(0), whole(vocabulary), whole(1)])
    if sampling.repeat_penalty != 1:
        x = _penalized(build, x, fed("recent", I64, "batch", "recent"), sampling.repeat_penalty)
    best = build.add("ReduceMax", [x, whole(1)], {"keepdims": 1})
    finite = build.add("Less", [build.add("Abs", [best]), build.constant(np.array(np.inf, np.float32))])
    if sampling.temperature == 0:
        token = build.add("ArgMax", [x], {"axis": 1, "keepdims": 1})
    else:
        token = _drawn(build, x, fed("random", F64, "batch", 1), sampling, vocabulary)
    graph.outputs = [build.add("Where", [finite, token, build.constant(FAILED)])]
    return graph


def _penalized(build: Builder, x: Value, recent: Value, penalty: float) -> Value:
    values = build.add("GatherElements", [x, recent], {"axis": 1})
    factor, zero = (build.constant(np.array(number, np.float32)) for number in (penalty, 0))
    sides = [build.add(name, [values, factor]) for name in ("Div", "Mul")]
    changed = build.add("Where", [build.add("Greater", [values, zero]), *sides])
    return build.add("ScatterElements", [x, recent, changed], {"axis": 1})


def _drawn(build: Builder, x: Value, random: Value, sampling: Sampling, vocabulary: int) -> Value:
    def number(value: float) -> Value:
        return build.constant(np.array(value, np.float64))

    def last(value: Value) -> Value:
        return build.add("Slice", [value, build.constant([-1]), build.constant([1 << 40]), build.constant([1])])

    def summed(value: Value, exclusive: int = 0) -> Value:
        return build.add("CumSum", [value, build.constant(1)], {"exclusive": exclusive})

    count = min(sampling.top_k or vocabulary, vocabulary)
    scores, ids = build.node("TopK", [x, build.constant([count])], {"axis": 1}, outputs=2).outputs
    wide = build.add("Cast", [scores], {"to": F64.onnx})
    first = build.add("Slice", [wide, build.constant([0]), build.constant([1]), build.constant([1])])
    below = build.add("Sub", [wide, first])
    kept: list[Value] = []
    if sampling.top_p < 1:
        likely = build.add("Exp", [below])
        wanted = build.add("Mul", [last(summed(likely)), number(sampling.top_p)])
        kept.append(build.add("Less", [summed(likely, 1), wanted]))
    if sampling.min_p > 0:
        kept.append(build.add("GreaterOrEqual", [below, number(math.log(sampling.min_p))]))
    weights = build.add("Exp", [build.add("Div", [below, number(sampling.temperature)])])
    for mask in kept:
        weights = build.add("Where", [mask, weights, number(0)])
    sums = summed(weights)
    passed = build.add("LessOrEqual", [sums, build.add("Mul", [last(sums), random])])
    place = build.add(
        "ReduceSum", [build.add("Cast", [passed], {"to": I64.onnx}), build.constant([1])], {"keepdims": 1}
    )
    mask = build.add("Cast", [build.add("Greater", [weights, number(0)])], {"to": I64.onnx})
    most = build.add("Sub", [build.add("ReduceSum", [mask, build.constant([1])], {"keepdims": 1}), build.constant(1)])
    return build.add("GatherElements", [ids, build.add("Min", [place, most])], {"axis": 1})


class DeviceSampler:
    """`Sampler` for logits on a device. A seed draws the same random numbers as there."""

    def __init__(self, sampling: Sampling, batch: int, vocabulary: int, **placed: Any) -> None:
        self.sampling = sampling
        self.seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
        self._random = [np.random.Generator(np.random.PCG64([self.seed, row])) for row in range(batch)]
        self._session = Session(sampling_graph(sampling, vocabulary), simplify=False, **placed)
        self._names = {value.name for value in self._session.get_inputs()}

    def choose(self, logits: Any, seen: Sequence[Sequence[int]]) -> np.ndarray:
        """The next tokens, int64 [batch], for logits [batch, length, vocabulary]. UnsupportedError if the largest logit
        is not finite."""
        feeds: dict[str, ArrayLike] = {"logits": logits}
        if "recent" in self._names:
            feeds["recent"] = _recent(seen, self.sampling.repeat_last)
        if "random" in self._names:
            feeds["random"] = np.array([[random.random()] for random in self._random])
        found: np.ndarray = self._session.run(None, feeds)[0][:, 0]
        if (found == FAILED).any():
            raise not_finite("not finite")
        return found


def _recent(seen: Sequence[Sequence[int]], count: int) -> np.ndarray:
    """The last `count` tokens of each sequence, repeated for shorter ones, in a power of two of columns, so that few
    plans are made."""
    lately = [recent_tokens(tokens, count) or [0] for tokens in seen]
    longest = 1 << (max(map(len, lately)) - 1).bit_length()
    return np.array([(tokens * -(-longest // len(tokens)))[:longest] for tokens in lately], np.int64)
