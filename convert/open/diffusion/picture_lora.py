"""LoRA files of text-to-image models, in kohya's and in diffusers' names, merged into the weights of the parts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UnsupportedError, UsageError
from ....runtime.base.units import counted
from ....runtime.contract.format import ReadOptions
from ....runtime.ir.graph import Graph
from ....runtime.passes.weights.lora import LowRank, apply_updates
from ....runtime.tensor.stored_tensor import StoredTensor
from .. import hub
from ..lora_adapter import SHOWN, split_strength
from ..open_model import read_file
from .single_file import original_modules

PREFIXES = {
    "lora_unet_": ("unet", "transformer"),
    "lora_transformer_": ("transformer",),
    "lora_te_": ("text_encoder",),
    "lora_te1_": ("text_encoder",),
    "lora_te2_": ("text_encoder_2",),
    "lora_te3_": ("text_encoder_3",),
    "unet.": ("unet",),
    "transformer.": ("transformer",),
    "diffusion_model.": ("transformer", "unet"),
    "text_encoder.": ("text_encoder",),
    "text_encoder_2.": ("text_encoder_2",),
    "text_encoder_3.": ("text_encoder_3",),
}
"""The folders of parts that names of modules may be about, by how they begin."""
FACTORS = {
    "lora_down": "down", "lora_up": "up", "lora_A": "down", "lora_B": "up", "lora.down": "down", "lora.up": "up",
    "lora_linear_layer.down": "down", "lora_linear_layer.up": "up",
}  # fmt: skip
"""The two factors by what follows the module's name."""
_NAME = re.compile(rf"(?P<module>.+?)\.(?P<factor>{'|'.join(map(re.escape, FACTORS))})(?:\.default)?\.weight")
_FIRST = re.compile(r"(?P<module>.+)\.processor\.(?P<layer>\w+?)_lora\.(?P<factor>down|up)\.weight")
"""Names of diffusers' first releases."""
ALPHA = ".alpha"
TEXT_MODEL = "text_model_"
LAYER_ALIASES = {"to_out": "to_out.0"}


@dataclass
class Update:
    """A file's update of one module."""

    factors: dict[str, StoredTensor] = field(default_factory=dict)
    alpha: float | None = None


def merge_files(graph: Graph, wanted: Sequence[str], *, offline: bool = False) -> None:
    """Merge LoRA files, each given as ``FILE`` or ``FILE:STRENGTH``, into the weights of a model's parts, in their
    order.

    Raises:
        UsageError: the strength is not a number.
        UnsupportedError: updates of another kind than LoRA.
        FormatError: updates that fit no weight of the model; the names are listed.
    """
    for text in wanted:
        path, strength = split_strength(text)
        local = hub.resolve(path, None, offline) if hub.is_uri(path) else Path(path)
        updates = _updates(read_file(local, ReadOptions()).weights, path)
        modules = _modules(graph)
        lost = [name for name in updates if _place(modules, name) is None]
        if lost:
            more = f" and {len(lost) - SHOWN:,} more" if len(lost) > SHOWN else ""
            why = (
                f"{len(lost)} of {counted(len(updates), 'module')} that the file changes "
                f"{'is' if len(lost) == 1 else 'are'} not in the model: {', '.join(lost[:SHOWN])}{more}"
            )
            raise FormatError("E-LORA-NAMES", path, why, hint="Use a LoRA of the same base model")
        for name, update in updates.items():
            place = _place(modules, name)
            assert place is not None
            _apply(graph.parts[place[0]], place[1], update, strength, name, path)
        with_strength = f", with strength {strength:g}" if strength != 1 else ""
        graph.event("W-LORA", f"{path}: {counted(len(updates), 'weight')} updated{with_strength}")
        graph.external_files = [*graph.external_files, str(local)]


def _updates(weights: Mapping[str, StoredTensor], path: str) -> dict[str, Update]:
    """The updates of a file by the names of modules in it."""
    found: dict[str, Update] = {}
    for name, tensor in weights.items():
        match = _NAME.fullmatch(name)
        first = _FIRST.fullmatch(name)
        if match is not None:
            found.setdefault(match["module"], Update()).factors[FACTORS[match["factor"]]] = tensor
        elif first is not None:
            layer = LAYER_ALIASES.get(first["layer"], first["layer"])
            found.setdefault(f"{first['module']}.{layer}", Update()).factors[first["factor"]] = tensor
        elif name.endswith(ALPHA) and math.prod(tensor.shape) == 1:
            found.setdefault(name.removesuffix(ALPHA), Update()).alpha = float(tensor.numpy().reshape(()))
        else:
            raise UnsupportedError(
                "E-LORA-KIND", path, f"the tensor {name!r} is not a factor of a LoRA", hint="LoHa, LoKr and DoRA differ"
            )
    if not any(update.factors for update in found.values()):
        raise FormatError("E-LORA-NAMES", path, "holds no factors of a LoRA")
    return found


def _modules(graph: Graph) -> dict[str, dict[str, str]]:
    """By part: the name of a weight by its module's, with underscores for dots, in diffusers' and in original names."""
    originals = original_modules(graph)
    found: dict[str, dict[str, str]] = {}
    for part, opened in graph.parts.items():
        names: dict[str, str] = {}
        for weight in opened.weights:
            if weight.endswith(".weight"):
                module = weight.removesuffix(".weight")
                for each in (module, *originals(part, module)):
                    names[each.replace(".", "_").removeprefix(TEXT_MODEL)] = weight
        found[part] = names
    return found


def _place(modules: Mapping[str, Mapping[str, str]], name: str) -> tuple[str, str] | None:
    """The part and the weight that a module's name in a file is about."""
    for prefix, parts in PREFIXES.items():
        if name.startswith(prefix):
            inner = name.removeprefix(prefix).replace(".", "_").removeprefix(TEXT_MODEL)
            for part in parts:
                weight = modules.get(part, {}).get(inner)
                if weight is not None:
                    return part, weight
    return None


def _apply(part: Graph, name: str, update: Update, strength: float, module: str, path: str) -> None:
    weight, up, down = part.weights[name], update.factors.get("up"), update.factors.get("down")
    if up is None or down is None:
        raise FormatError("E-LORA-PAIR", path, f"only one of the two LoRA factors of {module!r} is present")
    rank = down.shape[0] if down.shape else 0
    fits = rank and len(up.shape) >= 2 and math.prod(up.shape[1:]) == rank and up.shape[0] == weight.shape[0]
    if not fits or math.prod(down.shape[1:]) != math.prod(weight.shape[1:]):
        why = f"the LoRA factors of {module!r} do not match the shape of the weight"
        found = f"{list(up.shape)} and {list(down.shape)}"
        raise FormatError("E-LORA-SHAPE", path, why, expected=list(weight.shape), found=found)
    alpha = rank if update.alpha is None else update.alpha
    if not math.isfinite(alpha):
        raise UsageError("E-LORA-RANGE", path, f"the alpha of {module!r} is not finite")
    part.weights[name] = apply_updates(weight, [LowRank(up, down, strength * alpha / rank, False, None)])
