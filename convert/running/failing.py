"""What it means for a model to fail: its outputs differ from a peer's, or a command says so."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...runtime.errors import Error, UnsupportedError, UsageError
from ...runtime.graph import Graph
from ...runtime.session import Session
from ..options import Options
from ..pipeline import execute
from ..plan import plan_graph
from .comparing import compare
from .feeds import feeds as made_up

Fails = Callable[[Graph], bool]
TIMEOUT = 600
"""Seconds after which a command that has not ended has failed."""


def by_onnxruntime(feeds: Mapping[str, Any], rtol: float, atol: float, placed: Mapping[str, Any] | None = None) -> Fails:
    """Fails when onnxruntime runs the model and our outputs differ, or when only we refuse it; new inputs are made up.

    Args:
        placed: where we run it, as options of `Session`.
    """

    def fails(graph: Graph) -> bool:
        needed = {value.name for value in graph.inputs}
        fed, _ = made_up(graph, [], known={name: array for name, array in feeds.items() if name in needed})
        expected = _onnxruntime(graph, fed)
        if expected is None:
            return False
        try:
            found = Session(graph, **(placed or {})).run(None, fed)
        except Error:
            return True
        pairs = zip(graph.outputs, expected, found, strict=True)
        return not all(compare(value.name, one, other, rtol, atol).same for value, one, other in pairs if hasattr(one, "dtype"))

    return fails


def by_command(command: str) -> Fails:
    """Fails when the command, with the path of a model file in place of ``{}``, exits with anything but 0, or not within `TIMEOUT`.

    Raises UsageError for what is no command, then or when it is started.
    """
    try:
        program, *words = shlex.split(command)
    except ValueError as error:
        raise UsageError("E-GRAPH-COMMAND", None, "--fails has no command, or quotes that are not closed", found=command) from error

    def fails(graph: Graph) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = _saved(graph, Path(folder))
            try:
                filled = [program, *(word.replace("{}", str(path)) for word in words)]
                return subprocess.run(filled, capture_output=True, timeout=TIMEOUT).returncode != 0
            except subprocess.TimeoutExpired:
                return True
            except OSError as error:
                raise UsageError("E-GRAPH-COMMAND", None, f"the command of --fails cannot be started: {error.strerror}", found=command) from error

    return fails


def _saved(graph: Graph, folder: Path) -> Path:
    path = folder / "part.onnx"
    execute(plan_graph(graph, path, Options(to="onnx", verify="none")))
    return path


def _onnxruntime(graph: Graph, feeds: Mapping[str, Any]) -> list[Any] | None:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        hint = "pip install onnxruntime, or use --fails COMMAND"
        raise UnsupportedError("E-BENCH-PEER", None, "onnxruntime is not installed", hint=hint) from error
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(str(_saved(graph, Path(folder))), options, providers=["CPUExecutionProvider"])
            return list(session.run(None, dict(feeds)))
        except Exception:  # onnxruntime raises classes of its own for whatever it refuses, which is no failure of ours
            return None
