"""LoRA adapters merged into a model whose head is tied to its embedding: the two become different weights if the
adapter changes one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...models.schema.weight_layout import Transposed
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsupportedError
from ...runtime.contract.architecture import HF, TEXT_GENERATION, Architecture, Config, Layout
from ...runtime.contract.weight_binding import TIED, gather
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held
from ...runtime.tensor.stored_tensor import StoredTensor
from ..load.canonical_names import canonical_names, origins
from ..load.recognise import described, identified
from ..open.lora_adapter import merge
from ..open.prequantized import CONFIG, NESTED, configuration

EMBED, HEAD = "embed.weight", "head.weight"


@dataclass(frozen=True)
class TiedHead:
    """A head that has no weight of its own.

    Attributes:
        embedding: the file's name of the embedding; name: of the head, "" where files have none.
        values: the embedding.
    """

    embedding: str
    name: str
    values: StoredTensor


@dataclass(frozen=True)
class KnownModel:
    """A model of a known architecture.

    Attributes:
        stored: by the architecture's names of weights: their layout, and the file's names of the tensors.
        tied: whether config.json says that the head is tied to the embedding.
    """

    architecture: Architecture
    config: Config
    stored: Mapping[str, tuple[Layout, list[str]]]
    tied: bool

    @property
    def transposed(self) -> set[str]:
        """The file's names of the weights that are stored [in, out]."""
        parts = (names for layout, names in self.stored.values() if isinstance(layout, Transposed))
        return {name for names in parts for name in names}


def merge_adapters(graph: Graph, wanted: Sequence[str], *, offline: bool = False) -> None:
    """Merge adapters of PEFT into the weights of `graph`, as `merge` does.

    A tied head becomes a weight of its own if it or the embedding changes, unless the adapter changes both and says
    ``ensure_weight_tying``.
    """
    model = _known(graph) if wanted else None
    tied = None if model is None else _tied_head(graph, model)
    if tied is not None and tied.name:
        graph.weights[tied.name] = tied.values
    adapters = merge(graph, wanted, offline=offline, transposed=None if model is None else model.transposed)
    if tied is None:
        return
    changed = {name for name in (tied.embedding, tied.name) if graph.weights.get(name, tied.values) is not tied.values}
    if not tied.name:
        if changed:
            why = f"{tied.embedding} is tied to the head, which changes too: files have no other place for it"
            graph.note("W-LORA-TIED", why)
    elif not changed:
        del graph.weights[tied.name]
    elif len(changed) == 2 and all(adapter.setting("ensure_weight_tying", False, bool) for adapter in adapters):
        del graph.weights[tied.name]
        graph.note("W-LORA-TIED", f"{tied.embedding} is tied to the head, which changes with it as the adapter states")
    else:
        stated = _untied(configuration(graph) or {})
        graph.attachments[CONFIG] = Held(json.dumps(stated, indent=2, ensure_ascii=False).encode())
        which = "the adapter changes one of the two" if len(changed) == 1 else "the adapter changes both"
        why = f"the head was tied to {tied.embedding}, and {which}: the head becomes a weight, {tied.name}"
        graph.note("W-LORA-TIED", why)


def _untied(stated: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json, and that of a text part, that state a head of its own."""
    nested = stated.get(NESTED)
    inner = {NESTED: {**nested, TIED: False}} if isinstance(nested, Mapping) and TIED in nested else {}
    return {**stated, **inner, TIED: False}


def _known(graph: Graph) -> KnownModel | None:
    """The model of a checkpoint of transformers; None for models that are not known."""
    newer = canonical_names(graph, text_only=True)
    found = described(newer)
    if found is None or found[0] != HF:
        return None
    try:
        architecture, names, config = identified(newer)
    except (FormatError, UnsupportedError):
        return None
    bound = gather(architecture, config, newer.weights, names)
    given = {} if newer is graph else origins(graph)
    stored = {
        ours: (way.layout, [given.get(name, name) for name in present]) for ours, (way, present) in bound.stored.items()
    }
    return KnownModel(architecture, config, stored, bool(found[1].get(TIED, architecture.tied)))


def _tied_head(graph: Graph, model: KnownModel) -> TiedHead | None:
    """The head of a model that shares the embedding; None for heads of their own."""
    row = next((row for row in model.architecture.weights if row.name == HEAD), None)
    if EMBED not in model.stored or (HEAD in model.stored and not model.tied):
        return None
    if row is not None and model.config.values.get("task") != TEXT_GENERATION:
        return None
    embedding = model.stored[EMBED][1][0]
    name = next(row.stored(HF)[0].expanded(model.config, 0)) if row is not None else ""
    return TiedHead(embedding, name, graph.weights[embedding])
