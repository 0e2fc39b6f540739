"""Quantization request of a user, and the rules that it implies."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

from ....ops.quants.packings import packing_named
from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.contract.quantization_scheme import Packing
from ...translate import gguf_file_type
from .choose_type import Wishes
from .imatrix import Importance
from .mix import mix
from .recipe import find
from .rule import KEEP, Recipe, type_named

AUTO = "auto"


@dataclass(frozen=True)
class Quantization:
    """A quantization request.

    Attributes:
        type: a file type of llama.cpp, a dtype, ``copy``, or ``auto`` with a target; None for that of the recipe.
        recipe: a recipe, its file or its name.
        wishes: types of single tensors.
        importance: an importance matrix.
        allow_requantize: whether quantized tensors may be quantized again.
        no_fallback: whether a tensor whose rows the chosen type cannot hold is an error.
        prune: blocks to leave out.
        keep_split: as many output files as there are input files, each with the same tensors.
        overrides: metadata keys with their values, which also count as hyper-parameters.
        target_bpw, target_size: bits a weight, or bytes of the output, that ``auto`` keeps to.
        measure: whether the error of every tensor is computed while it is written.
        group: elements of a row that share a scale, of types that are several tensors; None for the usual number.
        device: where blocks are encoded, with the same bytes: cpu, cuda or cuda:N.
        device_memory: bytes that the encoding may hold there; None for what is free.
    """

    type: str | None = None
    recipe: Recipe | str | None = None
    wishes: Wishes = field(default_factory=Wishes)
    importance: Importance | None = None
    allow_requantize: bool = False
    no_fallback: bool = False
    prune: tuple[int, ...] = ()
    keep_split: bool = False
    overrides: tuple[tuple[str, Any], ...] = ()
    target_bpw: float | None = None
    target_size: int | None = None
    measure: bool = False
    group: int | None = None
    device: str = "cpu"
    device_memory: int | None = None

    @property
    def automatic(self) -> bool:
        """Whether types are chosen by size and loss."""
        return self.target_bpw is not None or self.target_size is not None

    @property
    def packing(self) -> Packing | None:
        """How weights are stored as several tensors; None for types of single tensors."""
        return packing_named(self.type)

    @property
    def copying(self) -> bool:
        """Whether all tensors stay as they are."""
        return self.type is not None and self.type.lower() == gguf_file_type.COPY


def recipe_of(request: Quantization) -> Recipe:
    """The rules that a request names; those of the recipe stand before those of the type."""
    given = find(request.recipe) if isinstance(request.recipe, str) else request.recipe
    if request.type is None or request.type.lower() in (AUTO, gguf_file_type.COPY) or request.packing is not None:
        return given or Recipe(KEEP, None)
    file_type = gguf_file_type.of_text(request.type)
    if file_type is not None:
        typed = mix(file_type)
    else:
        dtype = type_named(request.type)
        typed = Recipe(dtype.name, dtype)
    if given is None:
        return typed
    return dataclasses.replace(given, base=typed.base, rules=given.rules + typed.rules, file_type=typed.file_type)


def check(request: Quantization) -> None:
    """Raise UsageError for options that contradict each other."""
    if request.target_bpw is not None and request.target_size is not None:
        raise UsageError("E-OPTION", None, "--target-bpw and --target-size exclude each other", hint="Use one of them")
    if request.type is not None and (request.type.lower() == AUTO) != request.automatic:
        hint = "Use auto --target-bpw 4.5, or auto --target-size 6GiB"
        raise UsageError("E-OPTION", None, "the type auto and a target belong together", hint=hint)
    if request.automatic and request.recipe is not None:
        raise UsageError("E-OPTION", None, "a target chooses all types, a recipe does too", hint="Use one of them")
    if request.device == "cpu" and request.device_memory is not None:
        raise UsageError("E-OPTION", None, "--max-device-memory needs --device cuda", hint="Add --device cuda")
    if request.type is None and request.recipe is None and not request.automatic:
        hint = "candle-convert types lists the types, candle-convert recipes list the recipes"
        raise UsageError("E-OPTION", None, "missing argument TYPE, for example Q4_K_M", hint=hint)
    if request.packing is None and request.group is not None:
        raise UsageError("E-OPTION", None, "--group-size is for types such as W4A16", hint="Omit --group-size")
    if request.packing is not None and (request.importance is not None or request.recipe is not None):
        other = "--recipe" if request.importance is None else "--imatrix"
        why = f"{request.type} rounds to nearest, for all linear layers alike"
        raise UsageError("E-OPTION", None, why, hint=f"Omit {other}, or choose a type of GGUF, such as Q4_K_M")
    if request.packing is not None and request.device != "cpu":
        raise UsageError("E-OPTION", None, f"{request.type} is encoded on the CPU", hint="Omit --device")
    if request.copying and (request.wishes != Wishes() or request.recipe is not None):
        raise UsageError(
            "E-OPTION", None, "COPY leaves all tensors as they are, other types are named too", hint="Leave one out"
        )
