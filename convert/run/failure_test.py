"""Failure tests for `graph reduce`: outputs that differ from onnxruntime's, or a command that fails."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...runtime.base.errors import Error, UnsupportedError, UsageError
from ...runtime.ir.graph import Graph
from ...runtime.session import Session
from ..write.conversion_options import Options
from ..write.pipeline import execute
from ..write.plan import plan_graph
from .compare_outputs import compare
from .feeds import feeds as random_inputs

Fails = Callable[[Graph], bool]
TIMEOUT = 600
"""Seconds after which a command that has not ended has failed."""


def by_onnxruntime(
    feeds: Mapping[str, Any], rtol: float, atol: float, placed: Mapping[str, Any] | None = None
) -> Fails:
    """Fails when onnxruntime runs the model and our outputs differ, or when only we refuse it; new inputs are made up.

    Args:
        placed: where we run it, as options of `Session`.
    """

    def fails(graph: Graph) -> bool:
        needed = {value.name for value in graph.inputs}
        fed, _ = random_inputs(graph, [], known={name: array for name, array in feeds.items() if name in needed})
        expected = _onnxruntime(graph, fed)
        if expected is None:
            return False
        try:
            found = Session(graph, **(placed or {})).run(None, fed)
        except Error:
            return True
        pairs = zip(graph.outputs, expected, found, strict=True)
        return not all(
            compare(value.name, one, other, rtol, atol).same for value, one, other in pairs if hasattr(one, "dtype")
        )

    return fails


def by_command(command: str) -> Fails:
    """Fails when the command, with the path of a model file in place of ``{}``, exits with anything but 0, or not
    within `TIMEOUT`.

    Raises UsageError for an invalid command, here or when it is started.
    """
    try:
        program, *words = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            "E-GRAPH-COMMAND", None, "--fails needs a command with balanced quotes", found=command
        ) from error

    def fails(graph: Graph) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = _saved(graph, Path(folder))
            try:
                filled = [program, *(word.replace("{}", str(path)) for word in words)]
                return subprocess.run(filled, capture_output=True, timeout=TIMEOUT).returncode != 0
            except subprocess.TimeoutExpired:
                return True
            except OSError as error:
                why = f"the command of --fails cannot be started: {error.strerror}"
                raise UsageError("E-GRAPH-COMMAND", None, why, found=command) from error

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
            session = onnxruntime.InferenceSession(
                str(_saved(graph, Path(folder))), options, providers=["CPUExecutionProvider"]
            )
            return list(session.run(None, dict(feeds)))
        except Exception:  # onnxruntime raises its own classes; its errors are not failures of this package
            return None
