"""Files that our commands write of small graphs, run by onnxruntime and compared with the reference of the original."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import candle_convert as cc
import numpy as np
import onnx
from candle_convert.runtime.base.errors import Error, UnsupportedError
from candle_convert.tests.fuzz.graphs.compare import onnxruntime_session
from candle_convert.tests.fuzz.graphs.reference import Bounds
from candle_convert.tests.fuzz.graphs.small_graph import SmallGraph, type_of

OPSETS = (13, 15, 17, 18, 19, 20, 22, 23)
KINDS = ("simplify", *(f"opset {opset}" for opset in OPSETS), "extract")


def fault(graph: SmallGraph, kind: str) -> str | None:
    """What is wrong with a written file, None for nothing and for what cannot be written or run by onnxruntime."""
    bounds = [Bounds(graph, feeds) for feeds in graph.feeds()]
    wanted, cut = graph.outputs, {}
    if kind == "extract":
        made = [name for node in graph.nodes for name in node.outputs if name]
        wanted = tuple(made[-3:])
        cut = dict.fromkeys(made[: len(made) // 3])
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.onnx", Path(folder) / "target.onnx"
        onnx.save(graph.model(), source)
        try:
            network = cc.onnx.read(source)
            if kind == "simplify":
                network.simplify()
            elif kind == "extract":
                network.extract(wanted, list(cut))
            else:
                network.to_opset(int(kind.split()[1]))
            network.save(target)
        except UnsupportedError:
            return None
        except Error as error:
            return f"{kind}: {error}"
        model = onnx.load(target)
    refusal = refused(model)
    if refusal and not refused(graph.model()):
        return f"{kind}: onnx.checker: {refusal}"
    types = {name: type_of(bounds[0].values[name]) for name in wanted}
    return _ran(model, kind, replace(graph, outputs=wanted, types={**graph.types, **types}), bounds)


def refused(model: Any) -> str:
    """What onnx's checker says of a model."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        return str(error)
    return ""


def _ran(model: Any, kind: str, graph: SmallGraph, bounds: list[Bounds]) -> str | None:
    before, session = onnxruntime_session(graph.model()), onnxruntime_session(model)
    if session is None or before is None:
        return f"{kind}: onnxruntime does not load the file" if before is not None else None
    for index, item in enumerate(bounds):
        item.keep(graph.outputs)
        known: Mapping[str, np.ndarray] = item.values
        feeds = {value.name: known[value.name] for value in session.get_inputs()}
        try:
            unchanged = before.run(None, dict(graph.feeds()[index]))
        except Exception:
            return None
        try:
            found = session.run(list(graph.outputs), feeds)
        except Exception as error:
            return f"{kind}, run {index}: {error}"
        faults, approximated = _faults(item, graph, found), _faults(item, graph, unchanged)
        new = [wrong for name, wrong in faults.items() if name not in approximated]
        if new:
            return f"{kind}, run {index}: {new[0]}"
    return None


def _faults(bounds: Bounds, graph: SmallGraph, outputs: Sequence[Any]) -> dict[str, str]:
    """What is wrong with results by output. Where those of the original are wrong too, onnxruntime approximates."""
    faults = {name: bounds.fault(name, np.asarray(item)) for name, item in zip(graph.outputs, outputs, strict=True)}
    return {name: wrong for name, wrong in faults.items() if wrong}
