"""Files that `quantize` writes of small graphs: onnxruntime's results are our reference's of the same file, and are as
far from the original's as rounding to the type explains."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
from candle_convert.convert.quantize.calibration.calibrate import calibrate
from candle_convert.convert.quantize.network.quantize_network import quantize, simplified
from candle_convert.convert.quantize.network.request import Request
from candle_convert.runtime.base.errors import Error
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.passes.quantize.static_qdq_int8 import role_of
from candle_convert.tests.fuzz.graphs import compare
from candle_convert.tests.fuzz.graphs.reference import FOLDED, Bounds, Rounding, evaluate
from candle_convert.tests.fuzz.graphs.rewrite import refused
from candle_convert.tests.fuzz.graphs.small_graph import Node, SmallGraph, of_model, type_of
from candle_convert.tests.oracles.exact_onnxruntime import exact_session

RECURRENT = ("GRU", "Gather", "LSTM", "RNN")


@dataclass(frozen=True)
class Setting:
    """What a graph is quantized to; rounding moves an element by less than the largest of its tensor / `steps`."""

    request: Request
    steps: float

    @property
    def weights_only(self) -> bool:
        return self.request.kind in ("blocks", "float8")


SETTINGS = (
    Setting(Request("int8", "dynamic"), 100),
    Setting(Request("int4", "blocks", block=16), 7),
    Setting(Request("int8", "static"), 100),
    Setting(Request("uint8", "dynamic", per_channel=True), 100),
    Setting(Request("int8", "blocks", block=16, form="qdq"), 100),
    Setting(Request("int8", "static", per_channel=True, form="qoperator"), 100),
    Setting(Request("int8", "dynamic", per_channel=True, reduce_range=True), 50),
    Setting(Request("int4", "blocks", block=32, symmetric=True, form="qdq"), 7),
    Setting(Request("int8", "static", activation="int8", per_channel=True), 100),
    Setting(Request("int4", "blocks", block=16, symmetric=True), 7),
    Setting(Request("int8", "blocks", block=32), 100),
    Setting(Request("fp8", "float8", form="qdq", per_channel=True), 14),
    Setting(Request("uint8", "static", form="qoperator", reduce_range=True), 50),
)


class Coarse:
    """What quantized nodes read is rounded to a few steps, as are values that the quantized file rounds where they are
    made; nodes that only pass elements on round too."""

    def __init__(self, graph: SmallGraph, quantized: SmallGraph, setting: Setting) -> None:
        self._random = np.random.default_rng(0)
        self._steps = setting.steps
        self._rounded = {name for node in quantized.nodes if node.op == "DequantizeLinear" for name in node.outputs}
        self._largest: dict[str, float] = {}
        fixed = set(graph.constants)
        for node in graph.nodes:
            fixed.update(node.outputs if fixed.issuperset(node.read) and not node.subgraphs else ())
        for feeds in graph.feeds():
            for name, array in evaluate(graph, feeds).items():
                if array.dtype.kind == "f" and (name in fixed or not setting.weights_only):
                    largest = float(np.abs(array).max(initial=0))
                    self._largest[name] = max(self._largest.get(name, 0.0), largest)

    def read(self, node: Node, name: str, array: np.ndarray) -> np.ndarray:
        if name not in self._largest or (node.op not in RECURRENT and role_of(operator(node.op)) is None):
            return array
        return self._moved(name, array)

    def result(self, node: Node, array: np.ndarray, first: np.ndarray | None) -> np.ndarray:
        (name,) = node.outputs if len(node.outputs) == 1 else ("",)
        return self._moved(name, array) if name in self._rounded and name in self._largest else array

    def _moved(self, name: str, array: np.ndarray) -> np.ndarray:
        reach = self._largest[name] / self._steps
        return np.asarray((array + self._random.uniform(-reach, reach, array.shape)).astype(array.dtype))


def fault(graph: SmallGraph, setting: Setting, native: bool) -> str | None:
    """What is wrong with a quantized file, None for nothing and where there is nothing to quantize.

    Args:
        native: whether kernels compute the file too.
    """
    if any(array.dtype != np.float32 for array in graph.constants.values() if array.dtype.kind == "f"):
        return None
    try:
        model = _written(graph, setting.request)
    except Error as error:
        return None if error.code in ("E-QUANT-NODES", "E-QUANT-AGAIN") else f"{setting.request}: {error}"
    refusal = refused(model)
    if refusal and not refused(graph.model()):
        return f"{setting.request}: onnx.checker: {refusal}"
    quantized = of_model(model, graph.inputs)
    types = {name: type_of(array) for name, array in evaluate(graph, graph.feeds()[0]).items() if name in graph.outputs}
    quantized = replace(quantized, types={**quantized.types, **types})
    wrong = _not_as_onnxruntime(model, quantized, graph) or _too_far(graph, quantized, setting)
    if not wrong and native:
        wrong = compare.fault(quantized)
    return wrong and f"{setting.request}: {wrong}"


def _written(graph: SmallGraph, request: Request) -> onnx.ModelProto:
    """The model of the file that quantize writes."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.onnx", Path(folder) / "target.onnx"
        onnx.save(graph.model(), source)
        network = cc.onnx.read(source)
        simplified(network.graph)
        ranges = calibrate(network.graph, graph.feeds()).ranges("minmax") if request.kind == "static" else None
        quantize(network.graph, request, ranges)
        network.to_opset(21).save(target)
        return onnx.load(target)


def _not_as_onnxruntime(model: onnx.ModelProto, quantized: SmallGraph, original: SmallGraph) -> str | None:
    try:
        session = exact_session(model, threads=1)
    except Exception as error:
        unknown = "NOT_IMPLEMENTED" in str(error) or compare.onnxruntime_session(original.model()) is None
        return None if unknown else f"onnxruntime does not load the file: {error}"
    for run, feeds in enumerate(quantized.feeds()):
        try:
            outputs = session.run(list(quantized.outputs), dict(feeds))
        except Exception:
            return None
        bounds = Bounds(quantized, feeds, Rounding(FOLDED))
        for name, output in zip(quantized.outputs, outputs, strict=True):
            wrong = bounds.fault(name, np.asarray(output))
            if wrong:
                return f"onnxruntime, run {run}: {wrong}"
    return None


def _too_far(graph: SmallGraph, quantized: SmallGraph, setting: Setting) -> str | None:
    """What is further from the original than rounding moves it."""
    if any(node.subgraphs for node in graph.nodes):
        return None
    for run, feeds in enumerate(graph.feeds()):
        bounds, values = Bounds(graph, feeds, Coarse(graph, quantized, setting)), evaluate(quantized, feeds)
        for name in graph.outputs:
            codes = bounds.values[name].dtype.kind in "iu"  # a step of theirs may be less than what rounding moves
            wrong = None if codes else bounds.fault(name, values[name])
            if wrong:
                return f"quantized, run {run}: {wrong}"
    return None
