"""Audio codecs inside models that write their codes: the codec's rows and graphs under a prefix of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import HF, ORIGINAL, STATED, Architecture, Config, GraphBuilder
from ...runtime.contract.hyperparameter import ParameterError
from ...runtime.contract.naming import bound_to
from ...runtime.contract.weight_binding import MISSHAPEN, find_architecture
from ...runtime.contract.weight_binding import settle as settled
from ...runtime.ir.graph import Graph
from ...runtime.tensor.tensor import Tensor
from .network_hyperparameters import Stated
from .submodel import Submodel

CODEC = "codec"
"""How own names of the codec's weights and hyper-parameters begin, without the dot."""
AUDIO = "audio_"
"""How the names of the codec's graphs begin: ``audio_encoder`` and ``audio_decoder``."""
WRAPPED = "model."
"""How the names of the authors' weights begin inside Parler-TTS."""


def with_codec(architecture: Architecture, place: str, stem: str | None = None) -> Architecture:
    """The architecture, completed by the codec that a file states in the object `place` of its config.json and has the
    weights of, whose names begin with `stem`, by default `place`. A file may lack the codec."""

    def specialize(names: str, source: Mapping[str, Any], weights: Collection[str]) -> Architecture:
        empty = Submodel(CODEC, place, f"{stem or place}.", (), ())
        prefix = empty.hf if names == HF else empty.prefix
        found = [name.removeprefix(prefix) for name in weights if name.startswith(prefix)]
        if not found:
            return architecture
        convention = names
        if names == HF and all(name.startswith(WRAPPED) for name in found):
            found = [name.removeprefix(WRAPPED) for name in found]
            prefix, convention = prefix + WRAPPED, ORIGINAL
        try:
            stated = empty.stated(names, source)
        except ParameterError as error:
            why = f"invalid parameter {error.key} of a {architecture.name} model: {error}"
            raise FormatError("E-ARCH-KEY", None, why, hint=f"Correct it in {STATED[names]}") from error
        codec = find_architecture(HF, stated)
        bound = bound_to(codec, convention, found)
        keys = (Stated("model_type", codec.model_types[0]), *codec.keys)
        hf, theirs = (prefix, convention) if names == HF else (empty.hf, HF)
        return _completed(architecture, bound, Submodel(CODEC, place, hf, keys, bound.weights, theirs))

    return replace(architecture, specialize=specialize)


def _completed(architecture: Architecture, codec: Architecture, part: Submodel) -> Architecture:
    own = architecture.settle

    def settle(config: Config, weights: dict[str, Tensor]) -> None:
        if own is not None:
            own(config, weights)
        inner, values = _inside(part, weights), part.config(config)
        settled(codec, values, inner, config.values.get("path"))
        for name in [name for name in weights if name.startswith(part.prefix)]:
            del weights[name]
        weights |= {part.prefix + name: tensor for name, tensor in inner.items()}
        config.values |= {
            part.prefix + name: value for name, value in values.values.items() if name not in ("names", "path")
        }

    (task,) = architecture.tasks
    graphs = {AUDIO + name: _graph(part, build) for name, build in codec.tasks[0].graphs.items()}
    return replace(
        architecture,
        keys=(*architecture.keys, *part.rows()),
        weights=(*architecture.weights, *part.weight_rows()),
        tasks=(replace(task, graphs={**task.graphs, **graphs}),),
        settle=settle,
        ignored=(*architecture.ignored, *codec.ignored),
        specialize=None,
    )


def _inside(part: Submodel, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The codec's weights by its own names."""
    return {name.removeprefix(part.prefix): tensor for name, tensor in weights.items() if name.startswith(part.prefix)}


def _graph(part: Submodel, build: GraphBuilder) -> GraphBuilder:
    """The builder of a graph of the codec whose weights have the names of the whole model."""

    def graph(graph: Graph, config: Config, weights: Mapping[str, Tensor], *, fixed: bool) -> None:
        try:
            build(graph, part.config(config), _inside(part, weights), fixed=fixed)
        except MISSHAPEN as error:
            why = f"the weights of {part.place} do not fit each other"
            hint = "Is the configuration this model's?"
            raise FormatError("E-ARCH-SHAPE", config.values.get("path"), why, hint=hint) from error
        for name in list(graph.weights):
            value = graph.values.pop(name)
            value.name = part.prefix + name
            graph.values[value.name] = value
            graph.weights[value.name] = graph.weights.pop(name)

    return graph
