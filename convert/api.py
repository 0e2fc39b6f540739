"""The Python interface: `open`, `convert`, `plan`, `load_file`, `save_file`, `hash`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ..runtime.errors import UsageError
from ..runtime.format import ReadOptions
from ..runtime.graph import Graph
from ..runtime.tensor import Tensor
from . import opening

if TYPE_CHECKING:
    import numpy as np

    from . import pipeline
    from . import plan as planning
    from .options import Options
    from .progress import Progress
    from .quantizing.library import QuantizationPlan, Recipe

PathLike = str | os.PathLike[str]


def open(
    path: PathLike, *, key: str | None = None, format: str | None = None, revision: str | None = None, offline: bool = False,
    dequantized: bool = True,
) -> Graph:
    """A model file, shard index, directory or hf:// repository as a graph; only headers are read.

    Args:
        key: nested dictionary of a pickle that holds the weights, None or "auto" to find it.
        format: format name, None to recognise it by content.
        revision, offline: for hf://.
        dequantized: whether the weights of a model that was quantized elsewhere (GPTQ, AWQ, bitsandbytes ...) are numbers, computed when they are
            read, or the tensors that the file has.
    """
    options = ReadOptions(key=None if key == "auto" else key)
    return opening.open_model(path, options, format=format, revision=revision, offline=offline, dequantized=dequantized)


@overload
def plan(inputs: PathLike | Graph, output: Recipe, options: Options | None = None, **changes: Any) -> QuantizationPlan: ...
@overload
def plan(inputs: PathLike | Sequence[PathLike], output: PathLike, options: Options | None = None, **changes: Any) -> planning.Plan: ...
def plan(
    inputs: PathLike | Graph | Sequence[PathLike], output: PathLike | Recipe, options: Options | None = None, **changes: Any
) -> planning.Plan | QuantizationPlan:
    """What `convert` would do, from headers alone; with a `Recipe` in place of the output, what quantizing would do."""
    from . import plan as planning
    from .options import changed
    from .quantizing.library import QuantizationPlan, Recipe

    if isinstance(output, Recipe):
        if not isinstance(inputs, str | os.PathLike | Graph):
            raise UsageError("E-OPTION", None, "several inputs cannot be quantized at once", hint="Merge them first")
        return QuantizationPlan(inputs, output, changed(options, changes))
    if isinstance(inputs, Graph):
        raise UsageError("E-OPTION", None, "an open model is planned with a Recipe", hint="cc.plan(model, cc.Recipe('Q4_K_M'))")
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    return planning.plan(paths, output, changed(options, changes))


def convert(
    inputs: PathLike | Sequence[PathLike], output: PathLike, options: Options | None = None, *, progress: Progress | None = None, **changes: Any
) -> pipeline.Report:
    """Convert `inputs` to `output`; keyword arguments are fields of `Options`, sizes may be text such as "2GiB"."""
    from . import pipeline

    return pipeline.execute(plan(inputs, output, options, **changes), progress)


def load_file(path: PathLike, *, key: str | None = None) -> dict[str, np.ndarray]:
    """All tensors of a file as numpy arrays (ml_dtypes for bfloat16 and float8). Never executes code from the file."""
    from ..runtime.passes.weights import collected

    return {name: tensor.numpy() for name, tensor in collected(_as_stored(path, key)).items()}


def save_file(tensors: Mapping[str, Any], path: PathLike, metadata: dict[str, str] | None = None, *, format: str | None = None) -> None:
    """Write arrays, torch tensors or `Tensor`s to a file, replacing it when complete. The same values give the same bytes."""
    from . import pipeline
    from . import plan as planning
    from .options import Options

    graph = Graph(weights={name: _tensor(name, value) for name, value in tensors.items()}, metadata=dict(metadata or {}))
    made = planning.plan_graph(graph, Path(path), Options(to=format, force=True))
    pipeline.execute(made)


def hash(path: PathLike, *, key: str | None = None, canonical: bool = False) -> str:
    """Content hash of a model: equal for equal names, dtypes, shapes and values in any format.

    Args:
        canonical: hash the weights by their architecture's names and layouts and as f32, so that a Hugging Face
            directory and the GGUF file made from it give the same hash. UnsupportedError where the architecture is not
            known.
    """
    from . import hashing

    if canonical:
        return hashing.canonical_hash(_as_stored(path, key, dequantized=True))
    return hashing.content_hash(_as_stored(path, key))


def _as_stored(path: PathLike, key: str | None, *, dequantized: bool = False) -> Graph:
    options = ReadOptions(key=None if key == "auto" else key)
    return opening.open_model(path, options, upgraded=False, dequantized=dequantized)


def _tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if type(value).__module__.partition(".")[0] == "torch":
        from ..runtime.interop import from_torch

        return from_torch(value)
    import numpy

    if not isinstance(value, numpy.ndarray | numpy.generic):
        raise UsageError("E-TENSOR-TYPE", None, f"{name!r} is a {type(value).__name__}, not an array or tensor")
    return Tensor.of(numpy.asarray(value))
