"""LoRA adapters of PEFT, merged into the weights of their base model."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FileAccessError, FormatError, LimitError, UnsupportedError, UsageError
from ...runtime.base.units import counted
from ...runtime.base.untrusted.json import parse
from ...runtime.base.untrusted.regex import Pattern, compiled
from ...runtime.contract.format import ReadOptions
from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.lora import LowRank, apply_updates
from ...runtime.tensor.file import Source
from ...runtime.tensor.stored_tensor import StoredTensor
from . import hub
from .open_model import read_file

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
PREFIXES = ("base_model.model.", "base_model.")
PATTERNS = 1_000_000
"""Instructions of all compiled patterns of a parameter; a name of a module has about 100."""
OTHERS = ("model.", "transformer.")
"""Prefixes of names that an adapter may have, or lack, next to the model's names."""
CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Ways of initializing whose updates are to other weights than the model's own."""
UNKNOWN = (
    "layer_replication",
    "use_qalora",
    "use_bdlora",
    "kasa_config",
    "monteclora_config",
    "alora_invocation_tokens",
    "arrow_config",
    "trainable_token_indices",
    "target_parameters",
    "megatron_config",
)
_PART = re.compile(
    r"(?P<module>.+)\.lora_(?P<part>A|B|embedding_A|embedding_B|magnitude_vector)(?:\.(?!weight$|bias$)[^.]+)?"
    r"(?:\.(?P<kind>weight|bias))?\Z"
)
_AROUND = re.compile(r"\.(?:base_layer|modules_to_save(?:\.(?!weight$|bias$)[^.]+)?)(?=\.)")
ORIGINAL = ".original_module."
"""In names of tensors in whose place others are at work, where there are any (``modules_to_save``)."""
ALL_LINEAR = "all-linear"
SHOWN = 12


@dataclass
class Update:
    """An adapter's update of one module: its parts by PEFT's names."""

    parts: dict[str, StoredTensor] = field(default_factory=dict)

    @property
    def embedding(self) -> bool:
        return "embedding_A" in self.parts or "embedding_B" in self.parts

    @property
    def down(self) -> StoredTensor | None:
        return self.parts.get("embedding_A" if self.embedding else "A")

    @property
    def up(self) -> StoredTensor | None:
        return self.parts.get("embedding_B" if self.embedding else "B")


@dataclass(frozen=True)
class Adapter:
    """An adapter that was opened.

    Attributes:
        strength: what the user multiplies its updates by.
        updates: by module; replaced: whole tensors by name, which replace the model's.
    """

    path: str
    file: str
    strength: float
    config: Mapping[str, Any]
    updates: dict[str, Update]
    replaced: dict[str, StoredTensor]
    patterns: dict[str, list[tuple[Pattern, Any]]] = field(default_factory=dict)

    def setting(self, name: str, default: Any, kind: type | tuple[type, ...]) -> Any:
        """A parameter of the configuration; what is missing or null is the default."""
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise FormatError("E-LORA-CONFIG", os.path.join(self.path, CONFIG), f"has {name} {str(value)[:80]!r}")
        return value

    def scale(self, module: str, rank: int) -> float:
        """The factor of a module's update."""
        alpha = float(self._patterned("alpha_pattern", module, self.setting("lora_alpha", 8, (int, float))))
        said = self._patterned("rank_pattern", module, self.setting("r", rank, int))
        if said != rank:
            why = f"the LoRA factors of {module!r} have another rank"
            raise FormatError("E-LORA-SHAPE", self.file, why, expected=said, found=rank)
        return self.strength * alpha / (math.sqrt(rank) if self.setting("use_rslora", False, bool) else rank)

    def targets(self, module: str) -> bool:
        """Whether PEFT gives a module an update of this adapter; it leaves out others that the file has. UsageError for
        a pattern with look-around."""
        if self._selects("exclude_modules", module):
            return False
        stated = self.setting("target_modules", ALL_LINEAR, (str, list))
        if stated == ALL_LINEAR:
            return True
        if not self._selects("target_modules", module):
            return False
        return isinstance(stated, str) or module in stated or self._in_layers(module)

    def _selects(self, name: str, module: str) -> bool:
        """Whether a module is in a list of names or ends of names, or matches a pattern."""
        stated = self.setting(name, [], (str, list))
        if isinstance(stated, list):
            return any(module == end or module.endswith(f".{end}") for end in stated)
        return bool(compiled(rf"^(?:{stated})$", linear=True).search(module))

    def _in_layers(self, module: str) -> bool:
        """Whether the number of a module's layer is among ``layers_to_transform``, or there are none."""
        stated = self.setting("layers_to_transform", [], (int, list))
        wanted = stated if isinstance(stated, list) else [stated]
        if not wanted:
            return True
        lists = self.setting("layers_pattern", [], (str, list))
        before = [re.escape(str(each)) for each in ([lists] if isinstance(lists, str) else lists)] or ["[^.]*"]
        found = (re.match(rf".*\.{each}\.(\d{{1,9}})\.", module) for each in before)
        number = next((int(match[1]) for match in found if match is not None), None)
        return number in wanted

    def _patterned(self, name: str, module: str, usual: Any) -> Any:
        for pattern, value in self._patterns(name):
            if pattern.search(module):
                if type(value) not in (int, float) or not value > 0:
                    why = f"has {str(value)[:80]!r} in {name}"
                    raise FormatError(
                        "E-LORA-CONFIG", os.path.join(self.path, CONFIG), why, expected="a positive number"
                    )
                return value
        return usual

    def _patterns(self, name: str) -> list[tuple[Pattern, Any]]:
        """The patterns of a parameter, and the value of each."""
        if name not in self.patterns:
            found, size = [], 0
            for text, value in self.setting(name, {}, dict).items():
                try:
                    found.append((compiled(rf"^(.*\.)?({text})$", linear=True), value))
                except UsageError as error:
                    raise FormatError(
                        "E-LORA-CONFIG", os.path.join(self.path, CONFIG), f"has the {name} {text[:80]!r}: {error.why}"
                    ) from error
                size += found[-1][0].size
                if size > PATTERNS:
                    why = f"has patterns of more than {PATTERNS:,} steps in {name}"
                    raise LimitError(
                        "E-LORA-CONFIG",
                        os.path.join(self.path, CONFIG),
                        why,
                        hint="Write them shorter, with fewer repetitions",
                    )
            self.patterns[name] = found
        return self.patterns[name]


def merge(
    graph: Graph, wanted: Sequence[str], *, offline: bool = False, transposed: Collection[str] | None = None
) -> list[Adapter]:
    """Merge adapters, each given as ``DIR`` or ``DIR:STRENGTH``, into the weights of `graph`, in their order; the
    adapters.

    Args:
        offline: whether adapters of the hub are taken from its cache only.
        transposed: the weights of layers that are stored [in, out]; None if the model is not known, where adapters'
            ``fan_in_fan_out`` says so of square ones.

    Raises:
        UsageError: the strength is not a number.
        UnsupportedError: an adapter of another kind.
        FormatError: an adapter with tensors that fit no weight of the model; all are named.
    """
    adapters = [opened(text, offline) for text in wanted]
    for adapter in adapters:
        _leave_out(graph, adapter)
        places = _places(graph, adapter)
        for name, tensor in adapter.replaced.items():
            graph.weights[places[name]] = tensor
        for module, update in adapter.updates.items():
            _apply(graph, adapter, module, update, places, transposed)
        graph.external_files = [*graph.external_files, adapter.file]
        done = f"{counted(len(adapter.updates), 'weight')} updated" + (
            f", {len(adapter.replaced)} replaced" if adapter.replaced else ""
        )
        graph.event(
            "W-LORA",
            f"{adapter.path}: {done}" + (f", with strength {adapter.strength:g}" if adapter.strength != 1 else ""),
        )
    return adapters


def _leave_out(graph: Graph, adapter: Adapter) -> None:
    """Drop updates of modules that the configuration does not name, as PEFT does, with a note."""
    try:
        others = [module for module in adapter.updates if not adapter.targets(module)]
    except UsageError as error:
        graph.note(
            "W-LORA-TARGET", f"{adapter.path}: all updates are merged, as target_modules is not read: {error.why}"
        )
        return
    for module in others:
        del adapter.updates[module]
    if others:
        more = f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else ""
        updates = counted(len(others), "update", verb="is")
        why = f"{updates} left out, as in PEFT: target_modules does not name {', '.join(others[:SHOWN])}{more}"
        graph.note("W-LORA-TARGET", f"{adapter.path}: {why}")


def opened(text: str, offline: bool = False) -> Adapter:
    """The adapter that an option names."""
    path, strength = split_strength(text)
    local = hub.resolve(path, None, offline) if hub.is_uri(path) else Path(path)
    if not (local / CONFIG).is_file():
        raise FileAccessError(
            "E-LORA-DIR", path, f"holds no {CONFIG}", hint="Use the directory that PEFT saved, or DIR:STRENGTH"
        )
    source = Source(local / CONFIG)
    source.budget.charge(source.size, CONFIG)
    config = parse(source.read(0, source.size), source, 0, "E-LORA-CONFIG")
    if not isinstance(config, dict):
        raise FormatError("E-LORA-CONFIG", source.path, "is not a JSON object")
    file = next((local / name for name in WEIGHTS if (local / name).is_file()), None)
    if file is None:
        raise FileAccessError("E-LORA-DIR", path, "holds no weights", hint=f"Looked for {', '.join(WEIGHTS)}")
    _refuse_others(config, source.path)
    updates: dict[str, Update] = {}
    replaced: dict[str, StoredTensor] = {}
    for name, tensor in read_file(file, ReadOptions()).weights.items():
        plain = next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)
        found = _PART.match(plain)
        if found is None and ORIGINAL in plain:
            replaced.setdefault(plain.replace(ORIGINAL, "."), tensor)
        elif found is None:
            replaced[_AROUND.sub("", plain)] = tensor
        else:
            part = found["part"] + (".bias" if found["kind"] == "bias" else "")
            updates.setdefault(found["module"], Update()).parts[part] = tensor
    return Adapter(path, str(file), strength, config, updates, replaced)


def split_strength(text: str) -> tuple[str, float]:
    """The path and the strength of ``PATH[:STRENGTH]``; UsageError for a strength that is not a finite number."""
    path, colon, strength = text.rpartition(":")
    if not colon or os.path.isdir(text) or strength.startswith("//"):
        return text, 1.0
    try:
        value = float(strength)
    except ValueError as error:
        raise UsageError("E-OPTION", None, f"--lora {text!r} is not of the form DIR[:STRENGTH]") from error
    if not math.isfinite(value):
        raise UsageError("E-OPTION", None, f"--lora {text!r} needs a finite strength")
    return path, value


def _refuse_others(config: Mapping[str, Any], path: str) -> None:
    """Refuse methods of PEFT beyond LoRA and DoRA, and adapters trained for other weights."""
    kind = str(config.get("peft_type", "LORA"))
    if kind.upper() != "LORA":
        why = f"unsupported adapter type {kind[:80]!r}"
        raise UnsupportedError("E-LORA-KIND", path, why, hint="Only LORA can be merged (with or without DoRA)")
    first = str(config.get("init_lora_weights", "")).lower()
    if first.startswith(CHANGES_BASE):
        hint = "Save it with PEFT's path_initial_model_for_weight_conversion, which converts it to a plain LoRA"
        why = f"an adapter begun by {first[:80]!r} is to changed weights, not to the model's own"
        raise UnsupportedError("E-LORA-KIND", path, why, hint=hint)
    for name in UNKNOWN:
        if config.get(name):
            why = f"an adapter with {name} cannot be merged"
            raise UnsupportedError("E-LORA-KIND", path, why, hint="Merge it with PEFT, and convert the result")


def _places(graph: Graph, adapter: Adapter) -> dict[str, str]:
    """The model's name of every weight that the adapter changes."""
    wanted = [*adapter.replaced, *(f"{module}.weight" for module in adapter.updates)]
    wanted += [f"{module}.bias" for module, update in adapter.updates.items() if "B.bias" in update.parts]
    places, lost = {}, []
    for name in wanted:
        place = _place(graph, name)
        places[name] = place or ""
        if place is None:
            lost.append(name)
    if lost:
        more = f" and {len(lost) - SHOWN:,} more" if len(lost) > SHOWN else ""
        why = (
            f"{len(lost)} of {counted(len(wanted), 'weight')} that the adapter changes "
            f"{'is' if len(lost) == 1 else 'are'} not in the model: {', '.join(lost[:SHOWN])}{more}"
        )
        raise FormatError(
            "E-LORA-NAMES",
            adapter.file,
            why,
            hint="Adapters are for the Hugging Face directory of the model they were trained with",
        )
    return places


def _place(graph: Graph, name: str) -> str | None:
    others = (name.removeprefix(prefix) if name.startswith(prefix) else prefix + name for prefix in OTHERS)
    exact = next((each for each in (name, *others) if each in graph.weights), None)
    if exact is not None:
        return exact
    ending = [weight for weight in graph.weights if weight.endswith(f".{name}")]
    return ending[0] if len(ending) == 1 else None


def _apply(
    graph: Graph,
    adapter: Adapter,
    module: str,
    update: Update,
    places: Mapping[str, str],
    transposed_weights: Collection[str] | None,
) -> None:
    name = places[f"{module}.weight"]
    weight, up, down = graph.weights[name], update.up, update.down
    if up is None or down is None:
        raise FormatError("E-LORA-PAIR", adapter.file, f"only one of the two LoRA factors of {module!r} is present")
    inputs, outputs = math.prod(down.shape[1:]), up.shape[0] if up.shape else 0
    rank = down.shape[0] if down.shape else 0
    if not rank or len(up.shape) < 2 or math.prod(up.shape[1:]) != rank or len(weight.shape) < 2:
        why = f"the shapes of the LoRA factors of {module!r} do not match"
        raise FormatError("E-LORA-SHAPE", adapter.file, why, found=f"{list(up.shape)} and {list(down.shape)}")
    as_stored, swapped = (
        (weight.shape[0], math.prod(weight.shape[1:])) == sides for sides in ((outputs, inputs), (inputs, outputs))
    )
    stated = adapter.setting("fan_in_fan_out", False, bool)
    stored_transposed = stated if transposed_weights is None else name in transposed_weights
    transposed = swapped and (update.embedding or not as_stored or stored_transposed)
    if not as_stored and not transposed:
        why = f"the LoRA update of {module!r} does not match the shape of the weight"
        raise FormatError("E-LORA-SHAPE", adapter.file, why, expected=list(weight.shape), found=[outputs, inputs])
    magnitude = update.parts.get("magnitude_vector")
    if magnitude is None and adapter.setting("use_dora", False, bool):
        why = f"the adapter uses DoRA, but lacks {module}.lora_magnitude_vector"
        raise FormatError("E-LORA-DORA", adapter.file, why, hint="Is the file whole?")
    if magnitude is not None and (transposed or math.prod(magnitude.shape) != outputs):
        why = f"the magnitudes of {module!r} are of a layer stored [in, out] or of another size, which cannot be merged"
        raise UnsupportedError("E-LORA-DORA", adapter.file, why, hint="Merge it with PEFT, and convert the result")
    scale = adapter.scale(module, rank)
    graph.weights[name] = apply_updates(weight, [LowRank(up, down, scale, transposed, magnitude)])
    if "B.bias" in update.parts:
        _add_bias(graph, adapter, places[f"{module}.bias"], update.parts["B.bias"], scale)


def _add_bias(graph: Graph, adapter: Adapter, name: str, bias: StoredTensor, scale: float) -> None:
    """Add an update of a bias, as one of rank 1."""
    old = graph.weights[name]
    if old.shape != bias.shape or len(bias.shape) != 1:
        why = f"the LoRA update of {name!r} does not match its shape"
        raise FormatError("E-LORA-SHAPE", adapter.file, why, expected=list(old.shape), found=list(bias.shape))
    import numpy

    column = StoredTensor(bias.dtype, (*bias.shape, 1), bias.storage)
    one = StoredTensor.of(numpy.ones((1, 1), numpy.float32))
    made = apply_updates(StoredTensor(old.dtype, (*old.shape, 1), old.storage), [LowRank(column, one, scale)])
    graph.weights[name] = StoredTensor(made.dtype, old.shape, made.storage)
