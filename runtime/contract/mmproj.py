"""mmproj: how llama.cpp stores a multimodal model, whose encoders and projector have a GGUF file of their own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from ..base.dataclass import dataclass

CLIP = "clip"
"""``general.architecture`` of the file."""
PROJECTOR = "projector_type"
"""The key, without ``clip.``, of the kind of projector."""


def _nothing(config: Any, weights: Mapping[str, Any]) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Mmproj:
    """The file of the encoder and the projector of a family, by the value of ``clip.projector_type``. Functions take
    the hyper-parameters and the weights of the whole model, by its names, as far as this file has them.

    Attributes:
        projector: that value.
        keys, weights: rows by the names of the whole model, with GGUF keys (without ``clip.``) and names of tensors.
        kind: `model_type` of the encoder in config.json.
        preparation: preprocessor_config.json.
        part, place: name of the encoder among the parts, and its object in config.json.
        stated: further hyper-parameters of the whole, which no key holds.
        tokens: the text of the token whose id a hyper-parameter of the whole is; a vocabulary has the first one.
        text: ``general.architecture`` of the language model's file, empty for that of its family.
        text_type: `model_type` of the language model in config.json, empty for that of its family.
        text_keys: further keys of the language model's file, without the architecture's prefix.
        text_values: hyper-parameters of the whole, from these keys.
        misfit: why llama.cpp computes something else with a model; empty if it does not.
        approximated: what llama.cpp computes a little differently; empty for nothing.
        left_out: beginnings of names of weights that change no feature of the encoder, and are not written.
        accepts: whether files of a model have this projector.
        full: patterns of tensors that are f32 in each file; those of one dimension always are.
        reads: whether files with this projector are read as models of this family, where several write it.
        marker: a tensor that only files of this family have, where files with this projector are of several; empty
            for the family of the files without any marker.
        filled: weights that files lack and no feature depends on, for files of transformers.
        token_rows: by the name of a tensor, the text of the token whose row of the embeddings it is.
        renumbered: beginnings of names of tensors that the file numbers by the layers in a list; the name of that
            hyper-parameter.
    """

    projector: str
    keys: tuple[Any, ...]
    weights: tuple[Any, ...]
    kind: Callable[[Any, Mapping[str, Any]], str]
    preparation: Callable[[Any], dict[str, Any]]
    part: str = "vision"
    place: str = "vision_config"
    stated: Callable[[Any, Mapping[str, Any]], dict[str, Any]] = _nothing
    tokens: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    text_type: str = ""
    text_keys: Callable[[Any, Mapping[str, Any]], dict[str, Any]] = _nothing
    text_values: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda source: {}
    misfit: Callable[[Any, Mapping[str, Any]], str] = lambda config, weights: ""
    approximated: Callable[[Any], str] = lambda config: ""
    left_out: tuple[str, ...] = ()
    accepts: Callable[[Any], bool] = lambda config: True
    full: tuple[str, ...] = (r"position_embd\.weight$",)
    reads: bool = True
    marker: str = ""
    filled: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda weights: {}
    token_rows: Mapping[str, str] = field(default_factory=dict)
    renumbered: Mapping[str, str] = field(default_factory=dict)

    def file_of(self, architecture: Any) -> Any:
        """The architecture of an mmproj file, with the names of the whole model."""
        return dataclasses.replace(
            architecture,
            gguf=(CLIP,),
            keys=self.keys,
            weights=self.weights,
            settle=None,
            accepts=None,
            modules=(),
            ignored=tuple(f"^{re.escape(name)}$" for name in self.token_rows),
            parts={},
        )

    def numbered(self, weights: Mapping[str, Any], config: Any, *, reading: bool) -> dict[str, Any]:
        """Rename tensors: layers counted from 0 get the layer numbers of the model, or the reverse if `reading`."""
        found = dict(weights)
        for stem, name in self.renumbered.items():
            layers = config.values[name]
            order = dict(zip(layers, range(len(layers)), strict=True) if reading else enumerate(layers))
            found = {_renumbered(each, stem, order): tensor for each, tensor in found.items()}
        return found


def _renumbered(name: str, stem: str, order: Mapping[int, int]) -> str:
    number, dot, rest = name.removeprefix(stem).partition(".") if name.startswith(stem) else ("", "", "")
    known = number.isascii() and number.isdecimal() and len(number) < 5 and int(number) in order
    return f"{stem}{order[int(number)]}{dot}{rest}" if known else name
