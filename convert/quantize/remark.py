"""Errors and notes of a quantization, and the metadata of its output."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Any

from ...runtime.base.errors import UnsafeFileError, UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.format import Format
from ...runtime.ir.graph import Graph
from ...runtime.tensor.block_codec import codec_of
from ...runtime.tensor.dtype import DTYPES, BlockType, DType
from ..translate import gguf_file_type
from .network.request import REQUANTIZE_HINT
from .recipe.choose_type import Choice, Chooser, needs_importance
from .recipe.imatrix import Importance
from .recipe.request import Quantization
from .recipe.rule import Recipe

COPYING = (
    "--tensor-type 'RE=TYPE' chooses types by tensor name; the type COPY, or candle-convert convert, "
    "copies the model unchanged"
)


def refuse(
    choices: Sequence[Choice],
    recipe: Recipe,
    request: Quantization,
    importance: dict[str, Any],
    format: Format,
    model: str,
) -> None:
    """Raise for fallbacks and second quantizations that were not allowed, and for types that cannot be encoded so, or
    not be held by `format`.

    Args:
        model: the path of the input, for the command in a hint.
    """
    wrong = [choice for choice in choices if choice.dtype not in format.dtypes]
    if wrong:
        held = ", ".join(name for name in ("bf16", "f16", "f8_e4m3") if DTYPES[name] in format.dtypes)
        why = (
            f"{format.name} cannot hold {len(wrong)} of {counted(len(choices), 'tensor')}, "
            f"such as {wrong[0].weight.name!r} as {wrong[0].dtype.name}"
        )
        raise UnsupportedError(
            "E-OUT-DTYPE", None, why, hint=f"Write GGUF, or choose a type that {format.name} holds, such as {held}"
        )
    changed = [choice for choice in choices if choice.changes]
    if not (
        changed
        or request.copying
        or request.packing is not None
        or any(choice.dtype == recipe.base and choice.dtype.kind != "block" for choice in choices)
    ):
        raise UnsupportedError("E-QUANT-NOTHING", model, _nothing(choices), hint=COPYING)
    again = [choice for choice in changed if choice.weight.dtype.kind == "block"]
    if again and not request.allow_requantize:
        why = f"{counted(len(again), 'tensor', verb='is')} already quantized, such as {_named(again[0])}"
        raise UnsafeFileError("E-QUANT-AGAIN", None, why, hint=REQUANTIZE_HINT)
    fallen = [choice for choice in choices if choice.fallback]
    if fallen and (request.no_fallback or recipe.on_fallback == "error"):
        first = fallen[0]
        rows = f"{first.weight.name!r} with rows of {counted(first.weight.columns, 'element')}"
        why = f"{counted(len(fallen), 'tensor')} cannot have the chosen type, such as {rows}"
        hint = f"Without --no-fallback it gets {first.dtype.name}; --tensor-type can name another"
        raise UnsafeFileError(
            "E-QUANT-FALLBACK",
            None,
            why,
            expected=f"a multiple of {first.wanted.block} for {first.wanted.name}",
            hint=hint,
        )
    lacking = [choice for choice in changed if choice.weight.name not in importance and _lacks(choice, recipe)]
    if lacking:
        what = (
            "an importance matrix"
            if request.importance is None
            else "importance for it, which is missing in the importance matrix"
        )
        why = (
            f"{what} is needed for {counted(len(lacking), 'tensor')}, "
            f"such as {lacking[0].weight.name!r} to become {lacking[0].dtype.name}"
        )
        raise UnsupportedError("E-QUANT-IMPORTANCE", None, why, hint=_calibration(model, request))
    unable = [
        choice for choice in changed if isinstance(choice.dtype, BlockType) and codec_of(choice.dtype).encoder is None
    ]
    if unable:
        why = f"blocks of type {unable[0].dtype.name} can only be decoded"
        raise UnsupportedError("E-QUANT-ENCODE", None, why, hint="See candle-convert types")


def _nothing(choices: Sequence[Choice]) -> str:
    """Why nothing would be quantized."""
    matrices = [choice.weight for choice in choices if len(choice.weight.shape) > 1]
    if any(matrix.dtype.kind == "block" for matrix in matrices):
        return "nothing would be quantized: all matrices already have the type, or keep theirs"
    if matrices:
        return (
            f"nothing would be quantized: {counted(len(matrices), 'matrix', 'matrices')}, "
            f"such as {matrices[0].name!r}, would not change"
        )
    return f"nothing would be quantized: the model has {counted(len(choices), 'tensor')} and no matrix"


def _calibration(model: str, request: Quantization) -> str:
    """How to come by an importance matrix of the model."""
    if request.importance is not None:
        return (
            "Make one with text that reaches these tensors (every expert, for example), "
            "or choose a wider type such as Q4_K_M"
        )
    command = shlex.join(["candle-convert", "imatrix", model, "-d", "text.txt", "-o", "imatrix.gguf"])
    return (
        f"Compute one with `{command}`, where text.txt is sample text, and add --imatrix imatrix.gguf; "
        "or choose a wider type such as Q4_K_M"
    )


def _named(choice: Choice) -> str:
    return f"{choice.weight.name!r} ({choice.weight.dtype.name})"


def _lacks(choice: Choice, recipe: Recipe) -> bool:
    never = isinstance(choice.dtype, BlockType) and codec_of(choice.dtype).needs_importance
    return never or needs_importance(choice, recipe)


def note(
    graph: Graph,
    choices: Sequence[Choice],
    chooser: Chooser,
    request: Quantization,
    importance: dict[str, Any],
    addressed: Collection[str] = (),
) -> None:
    """A remark for the user, shown before and after quantization; `addressed`: patterns that decided a type of another
    file of the model."""
    groups: dict[tuple[DType, DType], list[Choice]] = {}
    for choice in choices:
        if choice.fallback:
            groups.setdefault((choice.wanted, choice.dtype), []).append(choice)
    for (wanted, dtype), fallen in groups.items():
        why = (
            f"{_count(fallen, 'tensor')} stored as {dtype.name} instead of {wanted.name}: "
            f"{'its row length is' if len(fallen) == 1 else 'their row lengths are'} not a multiple of {wanted.block}"
        )
        graph.note("W-FALLBACK", why, fallen[0].weight.name)
    for pattern in (each for each in chooser.unused if each not in addressed):
        graph.note("W-RULE-UNUSED", f"--tensor-type {pattern!r} has no effect: no quantized tensor matches")
    if request.importance is not None:
        graph.notes += request.importance.notes
        without = [
            choice
            for choice in choices
            if choice.changes and choice.dtype.kind == "block" and choice.weight.name not in importance
        ]
        without = [choice for choice in without if choice.weight.name not in ("token_embd.weight", "output.weight")]
        if without:
            graph.note(
                "W-IMATRIX-MISSING", f"{_count(without, 'tensor')} not in the importance matrix", without[0].weight.name
            )
    if not chooser.model.arch and request.packing is None and any(choice.chosen for choice in choices):
        graph.note("W-QUANT-NAMES", "general.architecture is missing; types are chosen by tensor names only")


def _count(choices: Sequence[Choice], what: str) -> str:
    return f"{len(choices)} {what}{'s' if len(choices) != 1 else ''}"


def describe(
    graph: Graph, request: Quantization, recipe: Recipe, choices: Sequence[Choice], file_type: int, to_gguf: bool
) -> None:
    """The metadata that llama-quantize writes, in its order: version and file type, overrides, the importance matrix,
    the number of blocks."""
    import numpy

    keys: list[tuple[str, Any]] = []
    if to_gguf:
        number = file_type if request.copying else recipe.file_type
        if number is None:
            number = gguf_file_type.guessed(choice.dtype for choice in choices if choice.chosen)
        keys += [
            (gguf_file_type.VERSION_KEY, numpy.uint32(gguf_file_type.QUANTIZATION_VERSION)),
            (gguf_file_type.FILE_TYPE_KEY, numpy.uint32(number)),
        ]
    keys += request.overrides
    if request.importance is not None and request.importance.values:
        keys += _importance_keys(request.importance)
    block_count = f"{graph.metadata.get('general.architecture')}.block_count"
    if request.prune and block_count in graph.metadata:
        keys.append((block_count, graph.metadata[block_count]))
    keys += recipe.metadata
    for key, value in keys:
        graph.metadata.pop(key, None)
        graph.metadata[key] = value


def _cut(text: str) -> str:
    """As much of a text as llama.cpp keeps."""
    return text.encode(errors="replace")[:127].decode(errors="ignore")


def _importance_keys(importance: Importance) -> list[tuple[str, Any]]:
    import numpy

    keys: list[tuple[str, Any]] = [("quantize.imatrix.file", _cut(importance.path))]
    if importance.datasets:
        keys.append(("quantize.imatrix.dataset", _cut(importance.datasets[0])))
    keys.append(("quantize.imatrix.entries_count", numpy.uint32(len(importance.values))))
    if importance.chunks > 0:
        keys.append(("quantize.imatrix.chunks_count", numpy.uint32(importance.chunks)))
    return keys
