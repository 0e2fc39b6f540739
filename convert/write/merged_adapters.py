"""LoRA adapters merged into a model whose head is tied to its embedding: the two become different weights if the
adapter changes one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsupportedError
from ...runtime.contract.architecture import HF, TEXT_GENERATION
from ...runtime.contract.weight_binding import gather
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held
from ...runtime.tensor.stored_tensor import StoredTensor
from ..load.canonical_names import canonical_names, origins
from ..load.recognise import described, identified
from ..open.lora_adapter import merge
from ..open.prequantized import CONFIG, NESTED, configuration

EMBED, HEAD, SWITCH = "embed.weight", "head.weight", "tie_word_embeddings"


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


def merge_adapters(graph: Graph, wanted: Sequence[str], *, offline: bool = False) -> None:
    """Merge adapters of PEFT into the weights of `graph`, as `merge` does.

    A tied head becomes a weight of its own if it or the embedding changes, unless the adapter changes both and says
    ``ensure_weight_tying``.
    """
    tied = _tied_head(graph) if wanted else None
    if tied is not None and tied.name:
        graph.weights[tied.name] = tied.values
    adapters = merge(graph, wanted, offline=offline)
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
    inner = {NESTED: {**nested, SWITCH: False}} if isinstance(nested, Mapping) and SWITCH in nested else {}
    return {**stated, **inner, SWITCH: False}


def _tied_head(graph: Graph) -> TiedHead | None:
    """The head of a model that shares the embedding; None for heads of their own, and for models that are not known."""
    newer = canonical_names(graph, text_only=True)
    found = described(newer)
    if found is None or found[0] != HF:
        return None
    try:
        architecture, names, config = identified(newer)
    except (FormatError, UnsupportedError):
        return None
    bound = gather(architecture, config, newer.weights, names)
    row = next((row for row in architecture.weights if row.name == HEAD), None)
    if EMBED not in bound.stored or (HEAD in bound.weights and not found[1].get(SWITCH)):
        return None
    generates = config.values.get("task") == TEXT_GENERATION
    if row is not None and not generates:
        return None
    stored = bound.stored[EMBED][1][0]
    embedding = stored if newer is graph else origins(graph)[stored]
    name = next(row.stored(names)[0].expanded(config, 0)) if row is not None else ""
    return TiedHead(embedding, name, graph.weights[embedding])
