"""The weights of a model directory for a class of transformers: which tensors it has by transformers' names, what the
graph's weights are of them, and heads that a checkpoint lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from ...models.pipelines.multimodal.prompts.prompt_rules import DECODER_MODEL
from ...models.schema.network_hyperparameters import IMAGE_CLASSIFICATION
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsupportedError, UsageError
from ...runtime.contract.architecture import (
    HF,
    MODEL,
    TEXT_CLASSIFICATION,
    TIMM,
    TORCHVISION,
    UNFOLDED,
    Architecture,
    Config,
    Weight,
    lacks_weights,
    sizes,
    weight_slots,
)
from ...runtime.contract.naming import bound_to, modules_of
from ...runtime.contract.weight_binding import (
    add_computed_weights,
    check_layers,
    config_from,
    find_architecture,
    gather,
    list_names,
    settle,
)
from ...runtime.ir.graph import Graph
from ...runtime.ir.shape_inference import infer
from ...runtime.tensor.stored_tensor import StoredTensor
from ...tensors.operations.random import GENERATOR
from ..load.recognise import identified
from ..open.prequantized import configuration
from .class_names import AUTO, OF_PARTS, ClassName, with_end
from .new_weights import INITIAL
from .weight_moves import Move, move_of

HEADS = ("classifier.", "cls_classifier.", "distillation_classifier.")
"""How the names of heads of image models begin in transformers."""
LIBRARIES = (TIMM, TORCHVISION)
"""Conventions of image models that are trained, and written, under their own names."""


@dataclass
class Pretrained:
    """A model that was opened for a class.

    Attributes:
        source: what was opened, as a model directory of transformers would have it.
        stated: config.json.
        tensors: by transformers' names; weights: by the architecture's own names, f32 or in blocks.
        moves: what own weights are of the tensors.
        new: tensors that the checkpoint lacks and were drawn.
        heads: tensors besides those of the family's base model.
        names: the convention of the tensors.
    """

    source: Graph
    stated: dict[str, Any]
    architecture: Architecture
    config: Config
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    weights: dict[str, StoredTensor] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    heads: frozenset[str] = frozenset()
    names: str = HF

    @property
    def path(self) -> str | None:
        """The file, for messages."""
        return self.source.files[0] if self.source.files else None

    def graph(self, weights: Mapping[str, StoredTensor]) -> Graph:
        """The graph of the task, with growing caches, norms and branches apart."""
        task = self.architecture.task(self.config.task)
        which = next((name for name in (MODEL, DECODER_MODEL) if name in task.graphs), None)
        if which is None:
            why = f"{self.architecture.title} models have several graphs: {', '.join(task.graphs)}"
            raise UsageError("E-MODEL-CLASS", self.path, why, expected="a model of one graph")
        graph = Graph(name=self.architecture.name, arch=self.architecture.name)
        task.graphs[which](graph, self.config, weights, fixed=False)
        return graph


def opened(
    graph: Graph, name: ClassName, changes: Mapping[str, Any], *, quantized: bool = False, new_head: bool = False
) -> Pretrained:
    """An open model of any format for a class.

    Args:
        changes: keys of config.json that replace the file's.
        quantized: whether quantized weights stay in blocks; others are dequantized.
        new_head: whether the head of a classifier is initialized randomly.

    Raises UsageError for a model of another family, or without the class's task; FormatError for missing weights.
    """
    graph = as_directory(graph, own=name.stem == AUTO, text_only=name.task not in OF_PARTS)
    stated = configuration(graph)
    source = graph.files[0] if graph.files else None
    names, implied = of_library(graph) or (HF, {})
    if names in LIBRARIES:
        stated = _library_settings(stated or {}, changes)
    elif stated is None:
        raise FormatError("E-ARCH-NONE", source, "the model has no config.json", hint="Open the model's directory")
    elif name.task in OF_PARTS:
        stated = {**stated, **changes}
    else:
        before = str((stated.get("architectures") or [name])[0])
        made = [with_end(before, name.end) if name.stem == AUTO else str(name)]
        stated = {**stated, **changes, "architectures": made}
    architecture = (
        identified(graph)[0] if name.task in OF_PARTS else find_architecture(names, implied or stated, source)
    )
    if not name.fits(architecture):
        why = f"the model is of {architecture.title}, not of the class {name}"
        raise UsageError("E-MODEL-CLASS", source, why, hint=f"Use {ClassName(AUTO, name.end)}")
    tensors = {
        each: tensor if quantized or tensor.qtype is None else tensor.dequantize()
        for each, tensor in graph.weights.items()
    }
    pretrained = Pretrained(graph, stated, architecture, Config({}), tensors, names=names)
    if new_head:
        for each in _stored_heads(architecture, tensors, names):
            del tensors[each]
    task = _task(pretrained, name)
    if architecture.modules:
        _add_image_head(pretrained, name, implied)
        pretrained.architecture = bound_to(architecture, names, pretrained.tensors)
    labels = stated.get("num_labels") or len(stated.get("id2label") or (0, 1))
    pretrained.config = config_from(
        pretrained.architecture, names, {**(implied or stated), "num_labels": labels}, source
    )
    pretrained.config.values |= {"task": task, **UNFOLDED}
    check_layers(pretrained.architecture, pretrained.config, pretrained.tensors, names, source)
    _bind(pretrained)
    if name.task not in OF_PARTS:
        _rename(pretrained, name)
    return pretrained


def has_head(source: Graph) -> bool:
    """Whether a model directory has the head of a classifier."""
    library = of_library(source)
    names, stated = library or (HF, configuration(source))
    return stated is not None and bool(_stored_heads(find_architecture(names, stated), source.weights, names))


def of_library(graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """The convention, and the configuration in our names, of an image model under names of `LIBRARIES`; None for other
    models."""
    from ..load.recognise import described

    found = described(graph)
    return found if found is not None and found[0] in LIBRARIES else None


def _library_settings(stated: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """timm's config.json with changes, in timm's keys too."""
    if "id2label" not in changes:
        return {**stated, **changes}
    labels = list(changes["id2label"].values())
    inner = stated.get("pretrained_cfg")
    prepared = {"pretrained_cfg": {**inner, "num_classes": len(labels)}} if isinstance(inner, Mapping) else {}
    return {**stated, **changes, **prepared, "num_classes": len(labels), "label_names": labels}


def _is_head(architecture: Architecture, names: str, name: str) -> bool:
    """Whether a tensor of an image model belongs to the head of a classifier."""
    if names == HF:
        return name.startswith(HEADS)
    heads = getattr(architecture.implied, "heads", ())
    return any(name.rpartition(".")[0] == head.rpartition(".")[0] for head in heads)


def _stored_heads(architecture: Architecture, tensors: Mapping[str, StoredTensor], names: str = HF) -> list[str]:
    """The tensors of a classifier's head."""
    if architecture.modules:
        return [name for name in tensors if _is_head(architecture, names, name)]
    rows = [row for task in architecture.tasks if task.name == TEXT_CLASSIFICATION for row in task.weights]
    heads = {name for row in rows for way in row.stored(HF) for name in way.names}
    return [name for name in tensors if name in heads]


def as_directory(graph: Graph, *, own: bool = True, text_only: bool = True) -> Graph:
    """The graph with the names and files that a model directory of transformers has; UnsupportedError for an exported
    graph.

    Args:
        own: whether image models of `LIBRARIES` keep their names.
        text_only: as of `canonical_names`.
    """
    from ...runtime.plugin.discovery import FORMATS
    from ..load.canonical_names import canonical_names
    from ..translate.translate import translated
    from ..translate.translation_options import TranslationOptions

    if graph.nodes:
        why = "is a graph that was exported to run, and is not trained"
        raise UnsupportedError("E-MODEL-GRAPH", graph.files[0], why, hint="Open the checkpoint that it was made from")
    newer = canonical_names(graph, text_only=text_only)
    copy = dataclasses.replace(
        newer, weights=dict(newer.weights), metadata=dict(newer.metadata), attachments=dict(newer.attachments), notes=[]
    )
    if own and of_library(copy) is not None:
        return copy
    translated(copy, FORMATS.load("safetensors"), True, TranslationOptions(names=HF))
    return copy


def _task(found: Pretrained, name: ClassName) -> str:
    try:
        return found.architecture.task(name.task).name
    except KeyError:
        known = ", ".join(task.name for task in found.architecture.tasks)
        why = f"{found.architecture.title} models are not supported for {name.task}"
        raise UsageError("E-MODEL-CLASS", found.path, why, expected=known) from None


def _bind(found: Pretrained) -> None:
    """Bind tensors to own weights; draw the head where the file lacks it."""
    architecture, config = found.architecture, found.config
    names = found.names
    bound = gather(architecture, config, found.tensors, names)
    heads = {row.name for row in architecture.task(config.task).weights}
    slots = {ours: (row, layer) for row, layer, ours in weight_slots(architecture, config)}
    wanted = [
        ours
        for ours, (row, _) in slots.items()
        if ours not in bound.weights
        and row.shape
        and row.repeats is None
        and (row.name in heads or ours.startswith("pooler."))
        and row.stored(names)
    ]
    lost = [name for name in bound.missing if name not in {_file_name(slots[ours], found) for ours in wanted}]
    if lost:
        why = f"missing weights of a {architecture.name} model: {list_names(lost)}"
        raise lacks_weights(found.path, why)
    if wanted and any(slots[ours][0].name in heads for ours in wanted) | (config.task == "feature-extraction"):
        for ours in wanted:
            row, _ = slots[ours]
            if row.optional and row.name not in heads and not _has_pooler(found):
                continue
            name = _file_name(slots[ours], found)
            found.tensors[name] = _drawn(found, sizes(row.shape or (), config), name)
            found.new.append(name)
        bound = gather(architecture, config, found.tensors, names)
    add_computed_weights(architecture, config, bound, names, found.path)
    settle(architecture, config, bound.weights, found.path)
    for ours, (way, present) in bound.stored.items():
        row, layer = slots[ours]
        move = move_of(way.layout, present, [found.tensors[each] for each in present], config)
        if move is not None:
            factor = row.factor(config, layer) if row.factor is not None else 1.0
            found.moves[ours] = dataclasses.replace(move, factor=move.factor * factor)
    found.weights = {
        name: tensor.cast("f32") if tensor.dtype.kind == "float" and tensor.qtype is None else tensor
        for name, tensor in bound.weights.items()
    }
    used = {name for _, present in bound.stored.values() for name in present}
    found.tensors = {name: tensor for name, tensor in found.tensors.items() if name in used}


def _has_pooler(found: Pretrained) -> bool:
    """Whether transformers' class of the task has a pooler, which checkpoints without one get as new weights."""
    return found.architecture.name == "bert" and found.config.task == "text-classification"


def _file_name(slot: tuple[Weight, int], found: Pretrained) -> str:
    row, layer = slot
    return next(row.stored(found.names)[0].expanded(found.config, layer))


def _drawn(found: Pretrained, shape: tuple[int, ...], name: str) -> StoredTensor:
    """A new weight as transformers initializes it: normal numbers for matrices, ones for norms, zeros for biases."""
    if len(shape) < 2:
        full = np.ones if name.endswith("weight") else np.zeros
        return StoredTensor.of(full(shape, np.float32))
    deviation = float(found.stated.get("initializer_range") or INITIAL)
    with GENERATOR.lock():
        drawn = GENERATOR.normal(int(np.prod(shape)), np.dtype(np.float32)).reshape(shape)
    return StoredTensor.of((drawn * np.float32(deviation)).astype(np.float32))


def _add_image_head(found: Pretrained, name: ClassName, implied: Mapping[str, Any]) -> None:
    """A classifier for an image model without one, or for other labels.

    Args:
        implied: the configuration in our names, of a model of `LIBRARIES`.
    """
    if name.task != IMAGE_CLASSIFICATION:
        return
    parts = modules_of(found.architecture, found.names, found.tensors)
    every = [each for part in parts for each in part.names(found.names)]
    names = [each for each in every if _is_head(found.architecture, found.names, f"{each}.weight")][::-1]
    if not names or any(f"{each}.weight" in found.tensors for each in names):
        return
    labels = found.stated.get("num_labels") or len(found.stated.get("id2label") or (0, 1))
    width = _pooled_width(found, implied)
    for kind, shape in (("weight", (labels, width)), ("bias", (labels,))):
        found.tensors[f"{names[0]}.{kind}"] = _drawn(found, shape, f"{names[0]}.{kind}")
        found.new.append(f"{names[0]}.{kind}")


def _pooled_width(found: Pretrained, implied: Mapping[str, Any]) -> int:
    """Elements of the vector of an image."""
    bound = bound_to(found.architecture, found.names, found.tensors)
    config = config_from(bound, found.names, implied or found.stated, found.path)
    config.values["task"] = bound.task("feature-extraction").name
    gathered = gather(bound, config, found.tensors, found.names)
    settle(bound, config, gathered.weights, found.path)
    inner = dataclasses.replace(found, architecture=bound, config=config)
    graph = inner.graph(gathered.weights)
    infer(graph)
    shape = graph.values["pooler_output"].shape or (None,)
    if not isinstance(shape[-1], int):
        raise UsageError("E-MODEL-CLASS", found.path, "how wide the vectors of images are is unknown")
    return shape[-1]


def _rename(found: Pretrained, name: ClassName) -> None:
    """Give tensors the names that they have in transformers' class, whatever class the file is of."""
    prefixes = found.architecture.prefixes
    heads = _head_names(found)
    if found.names != HF:
        found.heads = frozenset(heads)
        return
    prefix = _prefix(found)
    renamed = {}
    for each in found.tensors:
        plain = next((each.removeprefix(start) for start in prefixes if each.startswith(start)), each)
        renamed[each] = plain if name.is_base or each in heads or plain in heads else prefix + plain
    found.tensors = {renamed[each]: tensor for each, tensor in found.tensors.items()}
    found.new = [renamed[each] for each in found.new]
    found.heads = frozenset(renamed[head] for head in heads if head in renamed)
    found.moves = {
        ours: dataclasses.replace(move, names=tuple(renamed[each] for each in move.names))
        for ours, move in found.moves.items()
    }


def _head_names(found: Pretrained) -> set[str]:
    """Names of the tensors that stand next to the family's base model."""
    prefix = _prefix(found)
    if found.architecture.modules:
        return set(_stored_heads(found.architecture, found.tensors, found.names))
    found_names: set[str] = set()
    for row, layer, ours in weight_slots(found.architecture, found.config):
        if ours in found.moves and row.stored(HF):
            canonical = next(row.stored(HF)[0].expanded(found.config, layer), "")
            if not canonical.startswith(prefix):
                found_names.update(found.moves[ours].names)
    return found_names


def _prefix(found: Pretrained) -> str:
    """The prefix of the base model's weights in transformers' classes with heads."""
    prefixes = found.architecture.prefixes
    if found.architecture.modules:
        return next(iter(prefixes), "")
    stored = (way[0].names[0] for row in found.architecture.weights if (way := row.stored(HF)))
    return next((prefix for name in stored for prefix in prefixes if name.startswith(prefix)), "")
