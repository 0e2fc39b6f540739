"""Sharding: splits a model into several files, and merges a complete set of shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ...runtime.base.errors import UnsafeFileError, UnsupportedError, UsageError
from ...runtime.base.system_error import read_error
from ...runtime.ir.graph import Graph
from ..open import detect_format, hub
from ..open.locate import located
from ..open.model_directory import INDEX
from ..open.open_model import merged
from ..open.shard_set import NUMBERED, whole_set
from .conversion_options import Options
from .plan import Plan, plan_graph


def split(graph: Graph, path: str, output: str, options: Options) -> Plan:
    """The plan that writes `graph`, read from `path`, in shards.

    Args:
        output: a directory, which gets shards named after `path`, or the name of the whole, into which numbers are put.
        options: with a limit for shards; its format must be named.
    """
    assert options.to is not None
    format = detect_format.by_name(options.to)
    if options.shard_nbytes is None and options.shard_tensors is None:
        raise UsageError(
            "E-OPTION", None, "missing --shard-size or --shard-tensors", hint="--shard-size 5GB or --shard-tensors 100"
        )
    count, nbytes = len(graph), graph.nbytes
    target = Path(output)
    if not hub.is_uri(path) and Path(path).is_file() and not path.endswith(INDEX) and _is_folder(output):
        target /= _stem(Path(path).name, format.suffixes) + format.suffixes[0]
    made = plan_graph(graph, target, options, [path])
    shards = [file for file in made.files if file.name not in made.attached]
    too_large = (options.shard_nbytes or nbytes) < nbytes or (options.shard_tensors or count) < count
    if len(shards) == 1 and too_large and count > 1:
        why = f"{format.name} is written as one file only"
        raise UnsupportedError("E-OUT-SHARDS", target, why, hint="Use --to safetensors or --to gguf")
    refuse_inputs(made)
    return made


def merge(inputs: Sequence[str], open_input: Callable[[str], Graph]) -> Graph:
    """All tensors of the models and shards in `inputs`. A shard stands for its whole set, of which every file must be
    there.

    Args:
        open_input: opens one path.

    Raises:
        FileAccessError: a shard of a set is missing.
        FormatError: a tensor is in two files, or a set is not the one that its index describes.
    """
    graphs: list[Graph] = []
    seen: set[tuple[int, int]] = set()
    for path in dict.fromkeys(member for name in inputs for member in whole_set(name)):
        if hub.is_uri(path) or _identity(path) not in seen:
            graphs.append(open_input(path))
            seen.update(_identity(file) for file in graphs[-1].files)
    return merged(graphs, "an input")


def refuse_inputs(plan: Plan) -> None:
    """Raise when an output would replace one of the files that are read."""
    read = {_identity(file): file for file in (*plan.graph.files, *plan.graph.external_files)}
    for file in plan.files:
        path = plan.folder / file.name
        if path.exists() and _identity(path) in read:
            raise UnsafeFileError(
                "E-OUT-INPUT", path, "is one of the inputs and is not overwritten", hint="Choose another output"
            )


def _identity(path: str | os.PathLike[str]) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        located(path)
        raise read_error(path, error, "E-IO-MISSING", "found") from error
    return status.st_dev, status.st_ino


def _is_folder(output: str) -> bool:
    return output.endswith(os.sep) or os.path.isdir(output) or not Path(output).suffix


def _stem(name: str, suffixes: Sequence[str]) -> str:
    """A file name without its suffix and shard number."""
    match = NUMBERED.fullmatch(name)
    if match is not None:
        return match["stem"]
    return next((name[: -len(suffix)] for suffix in suffixes if name.lower().endswith(suffix)), Path(name).stem)
