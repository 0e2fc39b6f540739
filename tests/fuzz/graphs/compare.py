"""Comparison of a small graph's results: our sessions and onnxruntime against the NumPy reference."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.fuzz.graphs.reference import FOLDED, Bounds, Rounding, evaluate
from candle_convert.tests.fuzz.graphs.small_graph import SmallGraph

THREADS = (1, 2)
F16 = onnx.TensorProto.FLOAT16
Feeds = Mapping[str, np.ndarray]
onnxruntime.set_default_logger_severity(4)


def fault(graph: SmallGraph, native: bool = True) -> str | None:
    """What is wrong with our results, None for nothing; without `native`, graphs are simplified and run in NumPy."""
    runs = graph.feeds()
    bounds = [Bounds(graph, feeds) for feeds in runs]
    order = [*range(len(runs)), 0]
    results = []
    for threads in THREADS if native else (1,):
        try:
            session = Session(graph_of(graph.model()), threads, native=native, simplify=True)
            results.append(
                _in_turn(lambda feeds, session=session: session.run(None, feeds), [runs[at] for at in order])
            )
        except Exception as error:
            return f"{threads} threads: {type(error).__name__}: {error}\n{traceback.format_exc()[-1500:]}"
    for threads, found in zip(THREADS, results, strict=False):
        for at, outputs in zip(order, found, strict=True):
            for name, output in zip(graph.outputs, outputs, strict=True):
                wrong = bounds[at].fault(name, output)
                if wrong:
                    return f"{threads} threads, run {at}: {wrong}"
        if not _equal(found[0], found[-1]):
            return f"{threads} threads: the first run and its repetition differ"
    if not all(_equal(one, other) for one, other in zip(results[0], results[-1], strict=True)):
        return "threads change a result"
    return None


def shape_fault(graph: SmallGraph) -> str | None:
    """A shape that inference says and that a value does not have."""
    inferred = graph_of(graph.model())
    infer(inferred)
    symbols = {
        symbol: axis_of
        for name, item in graph.inputs.items()
        for axis_of in [(name, axis) for axis in range(len(item.dims) if item else 0)]
        if isinstance(symbol := item.dims[axis_of[1]], str)
    }
    for feeds in graph.feeds():
        for name, array in evaluate(graph, feeds).items():
            value = inferred.values.get(name)
            shape = None if value is None else value.shape
            if shape is None:
                continue
            known = [feeds[symbols[dim][0]].shape[symbols[dim][1]] if dim in symbols else dim for dim in shape]
            wrong = [
                dim for dim, length in zip(known, array.shape, strict=False) if isinstance(dim, int) and dim != length
            ]
            if wrong or len(known) != array.ndim or value.dtype.as_numpy() != array.dtype:
                return f"{name} is inferred as {value.dtype}{list(shape)}, and is {array.dtype}{list(array.shape)}"
    return None


def oracle_fault(graph: SmallGraph) -> str | None:
    """What is wrong with the reference, by onnxruntime; None for nothing, and where that does not run the graph, or
    computes in f32 what the graph rounds to f16."""
    session = onnxruntime_session(graph.model())
    if session is None or {F16} & set(graph.casts()):
        return None
    for at, feeds in enumerate(graph.feeds()):
        bounds = Bounds(graph, feeds, Rounding(FOLDED))
        try:
            found = session.run(None, dict(feeds))
        except Exception:
            return None
        for name, output in zip(graph.outputs, found, strict=True):
            wrong = bounds.fault(name, np.asarray(output))
            if wrong:
                return f"onnxruntime, run {at}: {wrong}"
    return None


def onnxruntime_session(model: Any) -> Any:
    """A session without optimizations; None for what onnxruntime does not run."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def _in_turn(run: Callable[[Feeds], list[Any]], feeds: Sequence[Feeds]) -> list[list[Any]]:
    """The results of runs one after another; a later one changes no earlier results, and none its feeds."""
    results, copies = [], []
    for arrays in feeds:
        given = {name: array.copy() for name, array in arrays.items()}
        results.append(run(given))
        copies.append([np.array(item) for item in results[-1]])
        assert all(np.array_equal(given[name], arrays[name]) for name in arrays), "a run changes its feeds"
        for array in given.values():
            array.fill(1)
    assert all(map(_equal, results, copies)), "a later run, or later writing into feeds, changes earlier results"
    return results


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True))
