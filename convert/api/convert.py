"""Python interface: `open`, `convert`, `plan`, `load_file`, `save_file`, `hash`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import counted
from ...runtime.contract.format import ReadOptions
from ...runtime.ir.graph import Graph, ValueTable
from ...runtime.plugin.cluster_handle import handle_of
from ...runtime.tensor.stored_tensor import StoredTensor
from ..load.stated_architecture import architecture_name
from ..open import open_model
from ..write.conversion_options import Options, takes_options

if TYPE_CHECKING:
    import numpy as np

    from ..console.progress import Progress
    from ..quantize.api import QuantizationPlan, Recipe
    from ..write import pipeline
    from ..write import plan as planning
    from ..write.option_changes import Changes

PathLike = str | os.PathLike[str]


@memory_limited
def open(
    path: PathLike,
    *,
    key: str | None = None,
    format: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    dequantized: bool = True,
) -> Graph:
    """A model file, shard index, directory or hf:// repository as a graph; only headers are read.

    Args:
        key: nested dictionary of a pickle that holds the weights, None or "auto" to find it.
        format: format name, None to detect it by content.
        revision, offline: for hf://.
        dequantized: whether the weights of a model that was quantized elsewhere (GPTQ, AWQ, bitsandbytes ...) are
            numbers, computed when they are read, or the tensors that the file has.
    """
    options = ReadOptions(key=None if key == "auto" else key)
    graph = open_model.open_model(
        path, options, format=format, revision=revision, offline=offline, dequantized=dequantized, parts=True
    )
    graph.arch = graph.arch or architecture_name(graph)
    graph.values = ValueTable(graph.values, graph)
    return graph


@overload
def plan(
    inputs: PathLike | Graph, output: Recipe, options: Options | None = None, **changes: Unpack[Changes]
) -> QuantizationPlan: ...
@overload
def plan(
    inputs: PathLike | Sequence[PathLike], output: PathLike, options: Options | None = None, **changes: Unpack[Changes]
) -> planning.Plan: ...
@memory_limited
@takes_options
def plan(
    inputs: PathLike | Graph | Sequence[PathLike],
    output: PathLike | Recipe,
    options: Options | None = None,
    **changes: Unpack[Changes],
) -> planning.Plan | QuantizationPlan:
    """Plan a conversion from headers alone, or, with a `Recipe` as the output, a quantization.

    Args:
        inputs: a path or hub address, several of them, or with a `Recipe` an open model.
        output: path of the output, or the `Recipe`.
        options: how to convert; keyword arguments are fields of `Options` and win over it.

    Raises UsageError for options that contradict each other, and what opening the inputs raises.
    """
    from ..quantize.api import QuantizationPlan, Recipe
    from ..write import plan as planning
    from ..write.conversion_options import changed

    if isinstance(output, Recipe):
        if not isinstance(inputs, str | os.PathLike | Graph):
            raise UsageError("E-OPTION", None, "several inputs cannot be quantized at once", hint="Merge them first")
        return QuantizationPlan(inputs, output, changed(options, changes))
    if isinstance(inputs, Graph):
        raise UsageError(
            "E-OPTION", None, "an open model is planned with a Recipe", hint="cc.plan(model, cc.Recipe('Q4_K_M'))"
        )
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    return planning.plan(paths, output, changed(options, changes))


@memory_limited
@takes_options
def convert(
    inputs: PathLike | Sequence[PathLike],
    output: PathLike,
    options: Options | None = None,
    *,
    progress: Progress | None = None,
    cluster: Any = None,
    **changes: Unpack[Changes],
) -> pipeline.Report:
    """Convert models to another format, dtype, sharding or naming; the format is that of the output's suffix.

        cc.convert("model.pth", "model.safetensors", dtype="bf16")

    Args:
        inputs: a path or hub address, or several that become one model.
        output: file or directory. An existing one is replaced when the new one is complete and verified, unless `force`
            is False; one of the inputs is replaced only where `force` is True.
        options: how to convert; keyword arguments are fields of `Options` and win over it, sizes may be text such as
            "2GiB".
        progress: the callback that gets the share of bytes written, such as `RichProgress`.
        cluster: workers that compute and write the tensors, with the same bytes: what `cluster` returns, or a
            `distributed.Client`.

    Raises:
        UsageError: options that are unknown or contradict each other.
        UnsafeFileError: the output exists and `force` is False, or it is an input and `force` is not True; code in a
            pickle.
        Error: others, with the file, the byte offset and a hint.
    """
    from ..write import pipeline
    from ..write.write import crew_of, start_early

    start_early(cluster)
    made = plan(inputs, output, options, **changes)
    crew = None if cluster is None else crew_of(cluster, made, made.inputs, output, made.options)
    return pipeline.execute(made, progress, crew)


@memory_limited
def load_file(path: PathLike, *, key: str | None = None, dequantize: str | None = None) -> dict[str, np.ndarray]:
    """All tensors of a file as numpy arrays (ml_dtypes for bfloat16 and float8). Never executes code from the file.

    Args:
        key: nested dictionary of a pickle that holds the weights, None or "auto" to find it.
        dequantize: the dtype (``f32``, ``f16`` ...) that tensors of block types become, and GPTQ, AWQ or bitsandbytes
            weights; None for none.

    Raises UnsupportedError for block types, which numpy does not have, where `dequantize` is None.
    """
    from ...runtime.passes.weights.collect import collect_weights

    found = collect_weights(_as_stored(path, key, dequantized=dequantize is not None))
    blocks = [name for name, tensor in found.items() if tensor.qtype is not None]
    if blocks and dequantize is None:
        why = (
            f"{counted(len(blocks), 'tensor', verb='has')} a quantized block type, for which NumPy has no dtype, "
            f"such as {blocks[0]!r} ({found[blocks[0]].dtype.name})"
        )
        raise UnsupportedError(
            "E-DTYPE-NUMPY", path, why, hint='Use load_file(path, dequantize="f32"), or open(path) for the blocks'
        )
    return {
        name: (tensor if tensor.qtype is None else tensor.dequantize(dequantize or "f32")).numpy()
        for name, tensor in found.items()
    }


@memory_limited
def save_file(
    tensors: Mapping[str, Any],
    path: PathLike,
    metadata: dict[str, str] | None = None,
    *,
    format: str | None = None,
    force: bool | None = None,
) -> None:
    """Write arrays, torch tensors or `StoredTensor`s to a file. The same values give the same bytes.

    Args:
        tensors: by name.
        path: of the file; its suffix says the format.
        metadata: the file's key-value pairs.
        format: format name, None for that of the suffix.
        force: as of `convert`: an existing file is replaced when the new one is complete, unless this is False.

    Raises UsageError for values that are not arrays or tensors, UnsupportedError for dtypes that the format does not
    have, UnsafeFileError where the file exists and `force` is False.
    """
    from ..write import pipeline
    from ..write import plan as planning

    graph = Graph(
        weights={name: _tensor(name, value) for name, value in tensors.items()}, metadata=dict(metadata or {})
    )
    made = planning.plan_graph(graph, Path(path), Options(to=format, force=force))
    pipeline.execute(made)


@memory_limited
def hash(path: PathLike, *, key: str | None = None, canonical: bool = False, cluster: Any = None) -> str:
    """Content hash of a model: equal for equal names, dtypes, shapes and values in any format.

    Args:
        key: as of `load_file`.
        canonical: hash the weights by their architecture's names and layouts and as f32, so that a Hugging Face
            directory and the GGUF file made from it give the same hash. UnsupportedError where the architecture is not
            known.
        cluster: workers that hash the tensors: what `cluster` returns, or a `distributed.Client`.
    """
    if cluster is not None:
        options = ReadOptions(key=None if key == "auto" else key)
        found: str = handle_of(cluster).content_hash(os.fspath(path), options, canonical=canonical)
        return found
    from ..compare.canonical_hash import canonical_hash
    from ..inspect.content_hash import content_hash

    return canonical_hash(_as_stored(path, key, dequantized=True)) if canonical else content_hash(_as_stored(path, key))


def _as_stored(path: PathLike, key: str | None, *, dequantized: bool = False) -> Graph:
    options = ReadOptions(key=None if key == "auto" else key)
    return open_model.open_model(path, options, upgraded=False, dequantized=dequantized, parts=True)


def _tensor(name: str, value: Any) -> StoredTensor:
    if isinstance(value, StoredTensor):
        return value
    if type(value).__module__.partition(".")[0] == "torch":
        return StoredTensor.of_torch(value)
    import numpy

    from ...tensors.core.tensor import Tensor

    if isinstance(value, Tensor):
        value = value.numpy(force=True)
    if not isinstance(value, numpy.ndarray | numpy.generic):
        raise UsageError("E-TENSOR-TYPE", None, f"{name!r} is a {type(value).__name__}, not an array or tensor")
    return StoredTensor.of(numpy.asarray(value))
