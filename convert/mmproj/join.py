"""A multimodal model from llama.cpp's two files: weights and config.json by transformers' names."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...models.preprocess.stated_preparation import FILES
from ...models.tokenizer.readers.locate import HELD
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import GGUF, GRAPH, HF, Architecture, Config, Row, parameters
from ...runtime.contract.hyperparameter import StatedValues
from ...runtime.contract.mmproj import Mmproj
from ...runtime.contract.part_binding import bound_to_file
from ...runtime.contract.part_rows import InnerKey, flattened
from ...runtime.contract.weight_binding import (
    bind,
    complete,
    config_from,
    config_keys,
    find_architecture,
    key_prefix,
    named_model_type,
    unbind,
)
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held, Storage
from ...runtime.tensor.stored_tensor import StoredTensor
from .projector import family_of

CONFIG = "config.json"
TEXT, TEXT_PLACE = "text", "text_config"
TOKENIZER = "tokenizer."
TOKENS = "tokenizer.ggml.tokens"
WIDTH = "text.hidden"
UP = "v.blk.{}.ffn_up"


@dataclass(frozen=True)
class Side:
    """One of the two files, by the names of the family: of the language model alone, or of the whole."""

    architecture: Architecture
    config: Config
    weights: dict[str, StoredTensor]


def joined(graph: Graph) -> Graph:
    """The whole model of a language model and its `Graph.mmproj`, by the names of transformers.

    Raises:
        FormatError: the files are of different models.
        UnsupportedError: an unknown architecture or kind of projector.
    """
    file = graph.mmproj
    assert file is not None
    architecture, mmproj = family_of(file)
    text = language_model(graph)
    other = encoder(file, architecture, mmproj, text.config.values["hidden"])
    stated = StatedValues(graph.metadata, key_prefix(GGUF, graph.metadata))
    config = whole_config(architecture, mmproj, text, other, {**token_ids(graph, mmproj), **mmproj.text_values(stated)})
    own = (
        {f"{TEXT}.{name}": tensor for name, tensor in text.weights.items()}
        | other.weights
        | mmproj.filled(other.weights)
    )
    path = file.files[0] if file.files else None
    bound = bound_to_file(architecture, GRAPH, StatedValues(flattened(config)), own, path)
    values = config_from(bound, HF, config, path)
    complete(bound, values, own)
    attachments: dict[str, Storage] = {
        **graph.attachments,
        CONFIG: _json(config),
        **prepared(file, mmproj, other.config),
    }
    return dataclasses.replace(
        graph,
        weights=unbind(bound, values, own, HF),
        metadata={key: value for key, value in graph.metadata.items() if key.startswith(TOKENIZER)},
        attachments=attachments,
        files=[*graph.files, *file.files],
        notes=[*graph.notes, *file.notes],
        mmproj=None,
    )


def language_model(graph: Graph) -> Side:
    """The language model of a GGUF file, by the names of its own family."""
    path = graph.files[0] if graph.files else None
    architecture = find_architecture(GGUF, graph.metadata, path)
    stated = StatedValues(graph.metadata, key_prefix(GGUF, graph.metadata))
    architecture = bound_to_file(architecture, GGUF, stated, graph.weights, path)
    config = config_from(architecture, GGUF, graph.metadata, path)
    return Side(architecture, config, bind(architecture, config, graph.weights, GGUF, path))


def encoder(file: Graph, architecture: Architecture, mmproj: Mmproj, width: int) -> Side:
    """The encoder and the projector, by the names of the whole. FormatError for another width than that of the language
    model."""
    path = file.files[0] if file.files else None
    own = mmproj.file_of(architecture)
    config = config_from(own, GGUF, file.metadata, path)
    stated = config.values.get(WIDTH)
    config.values[WIDTH] = width
    tensors = mmproj.numbered(unswapped(file.weights, config, mmproj), config, reading=True)
    try:
        weights = bind(own, config, tensors, GGUF, path)
    except FormatError as error:
        if error.code == "E-ARCH-SHAPE" and stated != width:
            why = f"its features have {counted(int(stated or 0), 'element')}, those of the language model {width:,}"
            raise FormatError("E-MMPROJ-WIDTH", path, why, hint="Is it the mmproj of this model?") from error
        raise
    config.values |= mmproj.stated(config, weights)
    return Side(own, config, weights)


def unswapped(weights: Mapping[str, StoredTensor], config: Config, mmproj: Mmproj) -> Mapping[str, StoredTensor]:
    """The tensors of a file; in older ones the two matrices of feed-forward networks are called after each other."""
    hidden, inner = (config.values.get(f"{mmproj.part}.{name}") for name in ("hidden", "intermediate"))
    first = weights.get(f"{UP.format(0)}.weight")
    if hidden == inner or first is None or first.shape != (hidden, inner):
        return weights
    renamed = {}
    for name, tensor in weights.items():
        stem, _, kind = name.rpartition(".")
        up, down = (stem.endswith(end) for end in (".ffn_up", ".ffn_down"))
        renamed[f"{stem[: -len('up')]}down.{kind}" if up else f"{stem[: -len('down')]}up.{kind}" if down else name] = (
            tensor
        )
    return renamed


def token_ids(graph: Graph, mmproj: Mmproj) -> dict[str, int]:
    """The ids of tokens around and in place of features, by the names of the whole's hyper-parameters. FormatError for
    a vocabulary without the first."""
    wanted = {text: name for name, text in mmproj.tokens.items()}
    found = {wanted[text]: i for i, text in enumerate(graph.metadata.get(TOKENS) or ()) if text in wanted}
    first = next(iter(mmproj.tokens), "")
    if first and first not in found and TOKENS in graph.metadata:
        path = graph.files[0] if graph.files else None
        why = f"the language model's vocabulary has no token {mmproj.tokens[first]}, which stands for features"
        raise FormatError("E-MMPROJ-TOKEN", path, why, hint="Is the mmproj that of this model?")
    return found


def whole_config(
    architecture: Architecture, mmproj: Mmproj, text: Side, other: Side, further: Mapping[str, Any]
) -> dict[str, Any]:
    """config.json of the whole; `further`: its hyper-parameters that the language model's file has."""
    known = Config({"names": HF, **other.config.values, **further})
    own = [row for row in architecture.keys if not isinstance(row, InnerKey)]
    tied = "head.weight" not in text.weights
    inner = config_keys(text.architecture, HF, text.config)
    kind = mmproj.text_type or inner.get("model_type") or (*text.architecture.model_types, text.architecture.name)[0]
    prefix = f"{mmproj.part}."
    values = {name.removeprefix(prefix): value for name, value in known.values.items() if name.startswith(prefix)}
    part = mmproj.kind(known, other.weights)
    rows = named_model_type(part)
    assert rows is not None, f"no family has the model_type {part}"
    said = stated_rows(own, known)
    of_text = {**_merged(said.pop(TEXT_PLACE, {}), inner), "model_type": kind, "tie_word_embeddings": tied}
    return {
        "model_type": architecture.model_types[0],
        **said,
        TEXT_PLACE: of_text,
        mmproj.place: {**stated_rows(rows.keys, Config({"names": HF, **values})), "model_type": part},
        "tie_word_embeddings": tied,
    }


def _merged(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of two objects, those of objects in both as well; `inner` goes first."""
    both = {key: {**outer[key], **value} for key, value in inner.items() if isinstance(value, dict) and key in outer}
    return {**outer, **inner, **both}


def stated_rows(rows: Sequence[Row], config: Config) -> dict[str, Any]:
    """The keys of config.json that rows write for the known hyper-parameters."""
    known = []
    for row in rows:
        with contextlib.suppress(AttributeError, KeyError):
            row.write(HF, config)
            known.append(row)
    return parameters(known, HF, config)


def prepared(file: Graph, mmproj: Mmproj, config: Config) -> dict[str, Held]:
    """The files that say how pictures are prepared: those that the file holds, or else one of its keys."""
    held = {name: file.metadata.get(HELD + name) for name in FILES}
    found = {name: Held(text.encode()) for name, text in held.items() if isinstance(text, str)}
    return found or {FILES[0]: _json(mmproj.preparation(config))}


def _json(value: Any) -> Held:
    return Held(json.dumps(value, indent=2, ensure_ascii=False).encode())
