"""Composition: an architecture with the hyper-parameters, weights and graphs of its parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ..plugin import discovery
from ..tensor.stored_tensor import StoredTensor
from .architecture import HF, Architecture, Config, Part
from .part_graph import part_builder
from .part_rows import SPECIAL, ModelType, key_rows, own_prefix, part_config, part_weights, weight_rows

Settle = Callable[[Config, dict[str, StoredTensor]], None]
MODEL_TYPE = "model_type"


def whole(architecture: Architecture) -> Architecture:
    """The architecture with the rows of its parts, except parts whose rows a file decides: those whose architecture it
    names, or whose weights are modules; itself without parts."""
    found = architecture
    for name, part in architecture.parts.items():
        own = architecture_of(part)
        if own is not None and not own.modules:
            found = with_part(found, name, replace(part, architecture=own), own.settle)
    return found


def architecture_of(part: Part) -> Architecture | None:
    """The architecture of a part; None if the file names it. LookupError for a name that is not registered."""
    own = part.architecture
    if not isinstance(own, str):
        return None if own is None else whole(own)
    for module in discovery.ARCHITECTURES.mentioning(f'"{own}"'):
        for each in discovery.ARCHITECTURES.load(module):
            if each.name == own:
                return whole(each)
    raise LookupError(f"no architecture is named {own!r}")


def with_part(
    architecture: Architecture, name: str, part: Part, settle: Settle | None, convention: str = HF
) -> Architecture:
    """The architecture with the rows and graphs of one part. A hyper-parameter of the part that the architecture has a
    row for is read and written by that row.

    Args:
        part: with its architecture, which has a row for each weight.
        settle: that of the part.
        convention: whose names the part's weights have in files of transformers.
    """
    own = part.architecture
    assert isinstance(own, Architecture)
    typed = part.place and own.model_types and all(row.name != MODEL_TYPE for row in own.keys)
    keys = (ModelType(own.model_types), *own.keys) if typed else own.keys
    graphs = {}
    if part.graphs is not None:
        built = own.tasks[0].graphs
        graphs = {part.graphs + which: part_builder(name, part.place, build) for which, build in built.items()}
    stated = {row.name for row in architecture.keys}
    return replace(
        architecture,
        keys=(*architecture.keys, *(row for row in key_rows(name, part, keys) if row.name not in stated)),
        weights=(*architecture.weights, *weight_rows(name, part, own.weights, convention)),
        tasks=tuple(replace(task, graphs={**task.graphs, **graphs}) for task in architecture.tasks),
        settle=architecture.settle if settle is None else _settling(architecture.settle, name, settle),
        ignored=(*architecture.ignored, *_ignored(name, part, own)),
        parts={**architecture.parts, name: part},
    )


def _settling(outer: Settle | None, name: str, inner: Settle) -> Settle:
    """Settles a part, then the whole."""
    prefix = own_prefix(name)

    def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
        values, own = part_config(config, name), part_weights(weights, name)
        inner(values, own)
        for key in [key for key in weights if key.startswith(prefix)]:
            del weights[key]
        weights |= {prefix + key: tensor for key, tensor in own.items()}
        config.values |= {prefix + key: value for key, value in values.values.items() if key not in SPECIAL}
        if outer is not None:
            outer(config, weights)

    return settle


def _ignored(name: str, part: Part, own: Architecture) -> list[str]:
    """Patterns of tensors that are not weights of a part, for names in files of transformers and own names."""
    prefixes = dict.fromkeys((*(below.prefix for below in part.names), own_prefix(name)))
    found = []
    for pattern in own.ignored:
        inner = pattern.replace("{layers}", f"{{{own_prefix(name)}layers}}")
        anchored = inner.removeprefix("^") if inner.startswith("^") else f".*(?:{inner})"
        found += [f"^{re.escape(prefix)}{anchored}" for prefix in prefixes]
    return found
