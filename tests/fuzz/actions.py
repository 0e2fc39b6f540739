"""What suites of models do with a file or directory, beside the commands: compute logits, run graphs with kernels."""

from __future__ import annotations

import random
import sys

import candle_convert as cc
import numpy as np
from candle_convert.convert.run.feeds import feeds
from candle_convert.runtime.passes.pattern.replace_nodes import graphs
from candle_convert.runtime.session import Session

LOGITS = "candle_convert.tests.fuzz.actions:logits"
NATIVE = "candle_convert.tests.fuzz.actions:native_run"
MEMORY = "64MiB"
"""What a run with kernels may take."""


def logits(path: str) -> int:
    """Load a model and compute the logits of three tokens, then those of one more."""
    from candle_convert import models

    model = models.load(path, threads=1)
    _, cache = model.step([3, 4, 5])
    model.step([6], cache)
    return 0


def chosen(path: str, draw: random.Random, count: int = 2) -> list[tuple[str, ...]]:
    """Some actions on the model at a path, logits always among them."""
    others = (
        ("inspect", path),
        ("models", "show", path),
        ("check", path),
        ("convert", path, "{out}/hf", "-t", "safetensors"),
        ("convert", path, "{out}/m.gguf"),
        ("convert", path, "{out}/onnx", "-t", "onnx"),
        ("quantize", path, "{out}/q.gguf", "Q8_0"),
        ("generate", path, "-p", "ab", "--max-tokens", "3", "--threads", "1"),
        ("verify", path, path),
        ("hash", path),
    )
    return [(LOGITS, path), *draw.sample(others, count)]


def native_run(path: str) -> int:
    """Run an ONNX model on made-up inputs in NumPy and with kernels; 70 where only one of both is refused, or results
    differ."""
    ends = []
    for native in (False, True):
        try:
            with cc.limits(memory=MEMORY), np.errstate(all="ignore"):
                graph = cc.onnx.read(path).graph
                random_operators = any(
                    node.op.name.startswith("Random") for part in graphs(graph) for node in part.nodes
                )
                given, _ = feeds(graph, [])
                ends.append(Session(graph, threads=1, native=native, simplify=True).run(None, given))
        except cc.Error as error:
            ends.append(error)
    numpy, kernels = ends
    refused = [isinstance(end, cc.Error) for end in ends]
    if any(refused):
        print(numpy, kernels, sep="\n", file=sys.stderr)
        return 0 if all(refused) else 70
    for index, (right, found) in enumerate(zip(numpy, kernels, strict=True)):
        if not random_operators and not _alike(right, found):
            print(f"output {index}: NumPy has {right!r}, kernels have {found!r}", file=sys.stderr)
            return 70
    return 0


def _alike(right: object, found: object) -> bool:
    """Whether arrays are equal but for rounding; other values are not compared."""
    if not isinstance(right, np.ndarray) or not isinstance(found, np.ndarray):
        return type(right) is type(found)
    if (right.dtype, right.shape) != (found.dtype, found.shape):
        return False
    if right.dtype.kind not in "fV":
        return bool(np.array_equal(right, found))
    wide, other = (np.asarray(array, np.float64) for array in (right, found))
    finite = np.abs(wide[np.isfinite(wide)])
    size = float(finite.max(initial=0))
    close = np.isclose(other, wide, rtol=1e-2, atol=1e-3 * size, equal_nan=True)
    return bool((close | ~np.isfinite(wide) | ~np.isfinite(other)).all())
