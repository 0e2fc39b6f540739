"""Model directories: selects the weight files, and recognizes copies of one model by their conventional names."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...runtime.base.errors import FileAccessError, FormatError, UsageError
from ...runtime.base.system_error import read_error
from .foreign_format import refuse_folder
from .graph_files import graphs_of

INDEX = ".index.json"
CONFIG = "config.json"
NETWORKS = "onnx"
"""The folder of ONNX files in a repository of transformers or sentence-transformers."""
WEIGHTS = (
    "*.safetensors.index.json",
    "*.bin.index.json",
    "*.safetensors",
    "*.bin",
    "*.pth",
    "*.pt",
    "*.ckpt",
    "*.gguf",
    "*.npz",
    "*.onnx",
    "*.weights",
)
"""Patterns of weight files; of copies of one model the first pattern is read."""
TRAINING = ("training_args*.bin", "optimizer*", "scheduler*", "rng_state*", "random_states*", "imatrix*")
"""Files of a training run, or about a model, that have the suffix of weights."""
_COPY = re.compile(
    r"(pytorch_model|model|consolidated|adapter_model|diffusion_pytorch_model|tf_model|flax_model|rust_model"
    r"|openvino_model|open_clip_(pytorch_)?model)"
    r"(?P<variant>[._-](fp16|fp32|bf16|f16|non_ema|ema|int8|uint8|q4|q4f16|q8|qu?int8(_[a-z0-9]+)*|bnb4|quantized|optimized|O[1-4]|\d+"
    r"|fused))?"
    r"([.-]\d+(-of-\d+)?)?\.[a-z0-9]+",
    re.IGNORECASE,
)
"""The names that transformers, diffusers, Optimum and the makers of models give to the copies of one model."""
ARRAYS = ".npz"
"""Suffix of a model's weights, and of the inputs and results that are kept next to a model."""
SHOWN = 20


def listed(folder: Path) -> list[str]:
    """The names in a directory, in order."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise read_error(folder, error, "E-IO-OPEN", "listed") from error


def weights(folder: Path) -> list[str]:
    """The names of a directory's files of weights and indexes."""
    found = [name for name in listed(folder) if _is_weights(name) and os.path.isfile(folder / name)]
    models = [name for name in found if not is_mmproj_name(name)]
    return models if any(name.endswith(".gguf") for name in models) else found


def _is_weights(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in WEIGHTS) and not any(
        fnmatch.fnmatch(name, pattern) for pattern in TRAINING
    )


def read_of(names: Iterable[str]) -> list[str]:
    """Of the names in a directory, those of the file or the shards that `find` chooses, and of their index."""
    found = [name for name in names if _is_weights(name)]
    chosen = min(found, key=_rank, default=None)
    return [name for name in found if chosen is not None and _same_set(chosen, name)]


def is_mmproj_name(name: str) -> bool:
    """Whether a file name is that of an mmproj file: the image or audio encoder next to a GGUF language model."""
    return name.lower().endswith(".gguf") and "mmproj" in name.lower()


def exported(folder: Path) -> tuple[dict[str, Path], list[str]] | None:
    """The files of an exported model of several graphs, by the names of these, and the names of those that are other
    variants of them; None for other directories."""
    names = weights(folder)
    if not names and _has_networks(folder):
        return exported(folder / NETWORKS)
    found = graphs_of(names)
    if found is None:
        return None
    chosen = set(found.values())
    return {part: folder / name for part, name in found.items()}, [name for name in names if name not in chosen]


def find(folder: Path) -> tuple[Path, list[str]]:
    """The file or index to open, and the names of all files of weights.

    Raises:
        FormatError: the directory has no weights.
        UsageError: there are several models, all of which are named.
    """
    names = weights(folder)
    if not names and _has_networks(folder):
        return find(folder / NETWORKS)
    if not names:
        refuse_folder(folder, listed(folder))
        raise FormatError("E-DIR-EMPTY", folder, "holds no weights", hint=_below(folder))
    chosen = min(names, key=_rank)
    if not chosen.endswith(INDEX):
        copies(folder, chosen, [name for name in names if not _same_set(chosen, name)], names)
    return folder / chosen, names


def _has_networks(folder: Path) -> bool:
    """Whether the weights of a directory are those of ONNX files in the folder for these."""
    inner = folder / NETWORKS
    return inner.is_dir() and not inner.is_symlink() and bool(weights(inner))


def model_folder(folder: Path) -> Path:
    """The folder of a model's configuration, for one of its files: that above the folder of its ONNX files."""
    inside = folder.name == NETWORKS and folder.is_dir() and not (folder / CONFIG).is_file()
    return folder.parent if inside and (folder.parent / CONFIG).is_file() else folder


def copies(folder: Path, chosen: str, others: Sequence[str], names: Sequence[str]) -> str | None:
    """A note on the files next to the chosen one: by their names copies of its model, or npz files with inputs or
    results of a model whose own file has a conventional name.

    Raises UsageError where they are other models, or parts of this one that no index names.
    """
    if not others:
        return None
    parts = not chosen.endswith(INDEX) and any(_same_set(chosen, name) for name in others)
    arrays = [name for name in others if name.lower().endswith(ARRAYS) and not _COPY.fullmatch(name)]
    known = (name for name in (chosen.removesuffix(INDEX), *others) if name not in arrays)
    if parts or not all(map(_COPY.fullmatch, known)):
        raise several(folder, names)
    return skipped(chosen, [name for name in others if name not in arrays], arrays)


def skipped(chosen: str, others: Sequence[str], arrays: Sequence[str] = ()) -> str:
    """A note on copies of a model, and on files of arrays, next to the file that is read."""
    kinds = (("likely copies of the model", others), ("arrays that are not the model", arrays))
    return "; ".join([f"reading {chosen}", *(f"skipped {what}: {_shortened(names)}" for what, names in kinds if names)])


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def several(folder: Path, names: Sequence[str]) -> UsageError:
    """The error for a directory of several models."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    why = f"holds {len(names)} weight files"
    return UsageError("E-DIR-CHOICE", folder, why, hint=f"Name one of them: {', '.join(names[:SHOWN])}{more}")


def _rank(name: str) -> tuple[int, bool, bool, str]:
    """The order in which copies of a model are preferred: by format, the name of transformers, without a variant, by
    name."""
    pattern = next(number for number, pattern in enumerate(WEIGHTS) if fnmatch.fnmatch(name, pattern))
    match = _COPY.fullmatch(name)
    return pattern, name.startswith("consolidated"), match is not None and match["variant"] is not None, name


def _same_set(first: str, name: str) -> bool:
    """Whether two files are shards of one set, or an index and one of its shards."""
    return _stem(first) == _stem(name)


def _stem(name: str) -> tuple[str, str]:
    plain = name.removesuffix(INDEX)
    stem, suffix = os.path.splitext(plain)
    return re.sub(r"-\d{5}-of-\d{5}\Z", "", stem), suffix.lower()


def _below(folder: Path) -> str:
    """A hint that names folders below with weights, as those of diffusers and of ONNX exports."""
    inner = [name for name in listed(folder) if os.path.isdir(folder / name) and not os.path.islink(folder / name)]
    found = [name for name in inner[:100] if _readable(folder / name)]
    if found:
        return f"Use one of its folders: {', '.join(found[:SHOWN])}"
    return f"Looked for {', '.join(WEIGHTS)}"


def _readable(folder: Path) -> bool:
    try:
        return bool(weights(folder))
    except FileAccessError:
        return False
