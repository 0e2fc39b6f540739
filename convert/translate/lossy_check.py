"""Settings of a model that files of another convention cannot express, and whether losing them changes its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.base.errors import FormatError, UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import GGUF, HF, Config, Row
from ...runtime.ir.graph import Graph

if TYPE_CHECKING:
    from ..load.bind import Model

IDLE = ("labels", "pad")
"""Rows that do not change what is computed of tokens."""
FILES = {GGUF: ("E-GGUF-SETTING", "GGUF files"), HF: ("E-HF-SETTING", "config.json files of transformers")}
"""Of a convention: the code of an error, and what its files are called."""
HINT = "Write safetensors or ONNX, which store all settings"
SHOWN = 60
"""Characters of a value that a message shows."""


def check_expressible(graph: Graph, model: Model, names: str = GGUF) -> None:
    """Refuse to write a model in a convention (`GGUF` or `HF`) in which it would compute something else when it is
    read; what changes little is noted on `graph`.

    Raises UnsupportedError that names the settings.
    """
    code, files = FILES[names]
    lost = list(_lost(model, names))
    small = [
        (row, ours, theirs, why) for row, ours, theirs in lost if (why := _little(row.name, ours, theirs, model.config))
    ]
    refused = [each for each in lost if each[0].name not in {row.name for row, *_ in small}]
    path = graph.files[0] if graph.files else None
    if refused:
        said = "; ".join(_difference(*each) for each in refused)
        kind = (model.architecture.gguf if names == GGUF else model.architecture.model_types)[0]
        why = f"{files} of the architecture {kind} lack a key for some of its settings: {said}"
        raise UnsupportedError(code, path, why, hint=HINT)
    if names == GGUF:
        _note_deviations(graph, model)
    for row, ours, theirs, why in small:
        graph.note("W-GGUF-SETTING", f"{files} have no key for it: {_difference(row, ours, theirs)}; {why}")


def _note_deviations(graph: Graph, model: Model) -> None:
    """Note what llama.cpp does differently with the model's GGUF file."""
    from ...runtime.contract.weight_binding import unbind

    tensors = unbind(model.architecture, model.config, model.weights, GGUF) if model.architecture.deviations else ()
    for deviation in model.architecture.deviations:
        if effect := deviation(model.config, tensors):
            graph.note("W-GGUF-LLAMA-CPP", f"llama.cpp {effect}")


def _lost(model: Model, names: str) -> Iterator[tuple[Row, Any, Any]]:
    """Rows whose value in a file is another, and changes what is computed: with our value, and the file's."""
    from ...runtime.contract.weight_binding import bind, config_from, config_keys, unbind

    architecture = model.architecture
    kind = {"general.architecture": architecture.gguf[:1], "model_type": architecture.model_types[:1]}
    said = config_keys(architecture, names, model.config) | {key: each[0] for key, each in kind.items() if each}
    config = config_from(architecture, names, said)
    try:
        bind(architecture, config, unbind(architecture, model.config, model.weights, names), names)
    except FormatError as error:
        path = model.source.files[0] if model.source.files else None
        why = f"{FILES[names][1]} of this model could not be read: {error.why}"
        raise UnsupportedError(FILES[names][0], path, why, hint=HINT) from error
    pairs = [
        (row, model.config.values.get(row.name), config.values.get(row.name))
        for row in architecture.keys
        if row.name not in IDLE
    ]
    differing = [(row, ours, theirs) for row, ours, theirs in pairs if not _same(ours, theirs)]
    if not differing:
        return
    whole = computed(model)
    for row, ours, theirs in differing:
        changed = replace(model, config=Config({**model.config.values, row.name: theirs}))
        try:
            same = computed(changed) == whole
        except FormatError:  # of a value that files imply, without others that they lack too
            same = False
        if not same:
            yield row, ours, theirs


def computed(model: Model) -> list[Any] | None:
    """Nodes and constants of each graph, which are equal for models that compute the same; None where there can be no
    such model."""
    from ..inspect.graph_diff import described

    try:
        graphs = model.graphs().values()
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return None
    return [(described(graph), _constants(graph, model)) for graph in graphs]


def _constants(graph: Graph, model: Model) -> dict[str, bytes]:
    return {name: bytes(tensor.raw()) for name, tensor in graph.weights.items() if name not in model.weights}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _little(name: str, ours: Any, theirs: Any, config: Config) -> str | None:
    """The effect of a difference that does not prevent writing the file."""
    check = LITTLE.get(name)
    return check(ours, theirs, config) if check else None


def _approximated(ours: Any, theirs: Any, config: Config) -> str | None:
    return "they differ by less than 0.001" if {ours, theirs} == {"gelu", "gelu_tanh"} else None


def _stretched(ours: Any, theirs: Any, config: Config) -> str | None:
    if ours["type"] == "dynamic":
        return f"sequences of up to {counted(config.context, 'token')} are not affected"
    return _rounded(ours, theirs, config) if ours["type"] == theirs["type"] == "yarn" else None


def _rounded(ours: Any, theirs: Any, config: Config) -> str | None:
    """The effect of rounding the range of YaRN's frequencies; None if the scalings differ otherwise."""
    from ...models.layers.rope import yarn_frequencies
    from ...models.schema.rope.yarn import attention_factor

    size = next(config.values[name] for name in ("rotary", "rope_dim", "head_dim") if name in config.values)
    exact, rounded, found = (
        yarn_frequencies(scaling, size, config.theta, config.context)
        for scaling in (ours, {**ours, "truncate": True}, theirs)
    )
    if not np.allclose(rounded, found, rtol=1e-6) or not math.isclose(
        attention_factor(ours), attention_factor(theirs), rel_tol=1e-6
    ):
        return None
    error = np.abs(found / exact - 1)
    changed = f"{np.count_nonzero(error > 1e-6):,} of {counted(len(exact), 'frequency', 'frequencies')}"
    return f"the range of its frequencies is rounded, as llama.cpp does: {changed} change by up to {error.max():.0%}"


def _small(ours: Any, theirs: Any, config: Config) -> str | None:
    return "it only prevents division by zero in norms" if max(ours, theirs) <= 1e-5 else None


def _of_other_sizes(ours: Any, theirs: Any, config: Config) -> str | None:
    return "images of the trained size are not affected"


LITTLE: dict[str, Callable[[Any, Any, Config], str | None]] = {
    "act": _approximated,
    "antialias": _of_other_sizes,
    "scaling": _stretched,
    "inner_eps": _small,
}


def _difference(row: Row, ours: Any, theirs: Any) -> str:
    """The differing keys of two objects of one type."""
    title = _title(row)
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        return f"{title} is {_text(ours)}, but files imply {_text(theirs)}"
    keys = [key for key in {**ours, **theirs} if not _same(ours.get(key), theirs.get(key))]
    if "type" in keys:
        keys = ["type"]
    return "; ".join(f"{title}.{key} {_of_key(key, ours, theirs)}" for key in keys)


def _of_key(key: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    stated = f"is {_text(ours[key])}" if key in ours else "is not stated"
    return f"{stated}, " + (f"but files imply {_text(theirs[key])}" if key in theirs else "which files do not state")


def _title(row: Row) -> str:
    keys = getattr(row, "hf", ())
    return str(keys if isinstance(keys, str) else keys[0] if keys else row.name)


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 4] + " ..."
