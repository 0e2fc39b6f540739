"""Sentence modules: how a model's files say that hidden states become one vector of a text.

Source: the modules Transformer, Pooling, Dense, LayerNorm and Normalize of sentence-transformers, and the files that
they are saved in; llama.cpp's ``pooling_type`` for GGUF files.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsupportedError
from ...runtime.contract.architecture import RunOptions
from ...runtime.contract.hyperparameter import COUNT, Choice, Listed, ParameterError, checked, flag, mapping, word
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..schema.hyperparameters import POOLING_KEY, POOLING_TYPES
from ..tokenizer.readers.locate import json_value
from .pooling import MODES, normalized

Stage = Callable[[np.ndarray], np.ndarray]
"""Vectors [batch, width] to vectors."""
MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER_SETTINGS = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json")
CODE = "E-SENTENCE-MODULE"
LEGACY_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Switches of older files by the mode that each stands for, in the order in which their vectors are joined."""
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
GGUF_DENSE = ("dense_2.weight", "dense_3.weight")
"""Weights of Dense modules after the pooling in GGUF files."""
DENSE_FOLDER = re.compile(r"(\d+_Dense[^/]*)/config\.json")
ACTIVATIONS: Mapping[str, Stage] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "GELU": lambda x: np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))), np.float32),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
}
"""Activations of Dense modules, by torch's classes."""


@dataclass(frozen=True)
class Dense:
    """act(W x + b), with a residual connection if the module has one."""

    weight: np.ndarray
    bias: np.ndarray | None
    activation: Stage
    residual: np.ndarray | None = None
    added: bool = False

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = x @ self.weight.T
        y = self.activation(y if self.bias is None else y + self.bias)
        return y + (x if self.residual is None else x @ self.residual.T) if self.added else y


@dataclass(frozen=True)
class Norm:
    """Layer norm."""

    weight: np.ndarray
    bias: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * self.weight + self.bias


@dataclass(frozen=True)
class SentenceModules:
    """Modules that make a vector of a text.

    Attributes:
        pooling: modes of `pooling.pooled`.
        include_prompt: whether the tokens of a prompt count in the pooling.
        stages: what is applied to the pooled vectors.
        prompts: texts that go before a text, by name; default_prompt: the name of the one that is used unless another
            is asked for.
        length: tokens of a text that are used, None for what the model takes.
        lowercase: whether texts are lowered first.
        similarity: one of `SIMILARITIES`.
        dim: elements of a vector that are kept (Matryoshka), None for all.
    """

    pooling: tuple[str, ...]
    include_prompt: bool = True
    stages: tuple[Stage, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    length: int | None = None
    lowercase: bool = False
    similarity: str = "cosine"
    dim: int | None = None


def sentence_modules(options: RunOptions, *, causal: bool) -> SentenceModules:
    """The modules of a model, by its files, or defaults for its kind.

    Args:
        causal: whether tokens attend only to those before them; the last one is the text's vector by default then.

    Raises UnsupportedError for a module of another kind, FormatError for files that are damaged.
    """
    source = Graph(files=[]) if options.source is None else options.source
    path = source.files[0] if source.files else None
    default = ("lasttoken",) if causal else ("mean",)
    try:
        listed = module_list(source)
        if listed is not None:
            return _listed(source, options, listed, default)
        if (said := gguf_pooling(source)) is not None:
            return SentenceModules((said,) if said else default, stages=(*_gguf_dense(source), normalized))
        folders = dense_folders(source)
        if len(folders) > 1:
            why = f"the model has several Dense modules and no {MODULES}: {', '.join(sorted(folders))}"
            raise UnsupportedError(CODE, path, why, hint=f"Copy {MODULES} from the model's repository")
        stages = [_dense(source, options, folder) for folder in folders]
        return SentenceModules(default, stages=tuple(stages), **_settings(source))
    except ParameterError as error:
        raise FormatError(CODE, path, f"invalid {error.key}: {error}") from error


def module_list(source: Graph) -> list[tuple[str, str]] | None:
    """(class, folder) of each module that modules.json names; None without that file. FormatError if it is damaged."""
    said = json_value(source, MODULES, CODE)
    if said is None:
        return None
    try:
        entries = checked(MODULES, said, Listed(mapping, 1, 64))
        return [
            (checked("type", entry.get("type"), word).rpartition(".")[2], checked("path", entry.get("path", ""), word))
            for entry in entries
        ]
    except ParameterError as error:
        path = source.files[0] if source.files else None
        raise FormatError(CODE, path, f"invalid {error.key} in {MODULES}: {error}") from error


def dense_folders(source: Graph) -> list[str]:
    """The folders of Dense modules of a model, such as ``2_Dense_1024``, whether modules.json names them or not."""
    return [match[1] for name in source.attachments if (match := DENSE_FOLDER.fullmatch(name))]


def embeds(source: Graph) -> bool:
    """Whether the files of a model say that it makes vectors of texts."""
    listed = module_list(source)
    if listed is None:
        return bool(gguf_pooling(source))
    return listed[0][0].endswith("Transformer") and any(kind == "Pooling" for kind, _ in listed)


def pooling_modes(source: Graph, folder: str) -> tuple[tuple[str, ...], bool]:
    """Modes of the Pooling module in a folder, and whether it includes prompts."""
    said = module_config(source, folder)
    mode = said.get("pooling_mode")
    if mode is None:
        modes = [name for key, name in LEGACY_MODES.items() if checked(key, said.get(key, False), flag)] or ["mean"]
    else:
        modes = checked("pooling_mode", [mode] if isinstance(mode, str) else mode, Listed(Choice(MODES), 1, len(MODES)))
    return tuple(modes), checked("include_prompt", said.get("include_prompt", True), flag)


def gguf_pooling(source: Graph) -> str | None:
    """The mode in a GGUF file's metadata; empty if it names none that makes a vector, None for other files."""
    name = source.metadata.get("general.architecture")
    if name is None:
        return None
    kind: Any = source.metadata.get(f"{name}.{POOLING_KEY}", 0)
    return POOLING_TYPES.get(int(kind), "")


def gguf_dense(weights: Mapping[str, StoredTensor], path: str | None) -> list[StoredTensor]:
    """The Dense modules among the weights of a GGUF file. FormatError unless each takes what the one before it
    gives."""
    found = [weights[name] for name in GGUF_DENSE if name in weights]
    widths = [tuple(tensor.shape) for tensor in found]
    if any(len(shape) != 2 for shape in widths) or any(one[0] != other[1] for one, other in itertools.pairwise(widths)):
        raise FormatError(CODE, path, f"the shapes of {' and '.join(GGUF_DENSE)} do not fit", found=list(widths))
    return found


def _gguf_dense(source: Graph) -> list[Stage]:
    path = source.files[0] if source.files else None
    matrices = (np.asarray(tensor.dequantize().numpy(), np.float32) for tensor in gguf_dense(source.weights, path))
    return [Dense(matrix, None, ACTIVATIONS["Identity"]) for matrix in matrices]


def _listed(
    source: Graph, options: RunOptions, listed: Sequence[tuple[str, str]], default: tuple[str, ...]
) -> SentenceModules:
    pooling, included, stages = default, True, []
    for index, (kind, folder) in enumerate(listed):
        if kind == "Pooling":
            pooling, included = pooling_modes(source, folder)
        elif kind in STAGES:
            stages.append(STAGES[kind](source, options, folder))
        elif kind != "Dropout" and (index or not kind.endswith("Transformer")):
            path = source.files[0] if source.files else None
            hint = f"Known: Transformer, Pooling, {', '.join(STAGES)}"
            raise UnsupportedError(CODE, path, f"unknown module {kind!r} in {MODULES}", hint=hint)
    return SentenceModules(pooling, included, tuple(stages), **_settings(source))


def _settings(source: Graph) -> dict[str, Any]:
    """Prompts, lengths and the similarity that the files state."""
    said = checked(SETTINGS, json_value(source, SETTINGS, CODE) or {}, mapping)
    prompts = checked("prompts", said.get("prompts") or {}, mapping)
    default = said.get("default_prompt_name")
    own: Mapping[str, Any] = next(
        (each for name in TRANSFORMER_SETTINGS if isinstance(each := json_value(source, name, CODE), Mapping)), {}
    )
    length = own.get("max_seq_length")
    similarity, dim = said.get("similarity_fn_name"), said.get("truncate_dim")
    return {
        "prompts": {name: checked(f"prompts.{name}", text, word) for name, text in prompts.items()},
        "default_prompt": None if default is None else checked("default_prompt_name", default, word),
        "length": None if length is None else checked("max_seq_length", length, COUNT),
        "lowercase": checked("do_lower_case", own.get("do_lower_case", False), flag),
        "similarity": similarity if similarity in SIMILARITIES else "cosine",
        "dim": None if dim is None else checked("truncate_dim", dim, COUNT),
    }


def module_config(source: Graph, folder: str) -> Mapping[str, Any]:
    """The config.json of the module in a folder. FormatError if it is missing."""
    name = f"{folder}/config.json"
    said = json_value(source, name, CODE)
    if said is None:
        path = source.files[0] if source.files else None
        raise FormatError(CODE, path, f"{name} is missing", hint="Download it into a folder beside the model")
    return dict(checked(name, said, mapping))


Companion = Callable[[str], Mapping[str, StoredTensor]]
"""Reads the weights in an attached file, by the file's name."""


def module_weights(source: Graph, companion: Companion | None, folder: str) -> Mapping[str, StoredTensor]:
    """The weights of the module in a folder. FormatError if the file is missing."""
    names = [f"{folder}/{name}" for name in ("model.safetensors", "pytorch_model.bin")]
    name = next((name for name in names if name in source.attachments), None)
    if name is None or companion is None:
        path = source.files[0] if source.files else None
        raise FormatError(CODE, path, f"{names[0]} is missing", hint="Download it into a folder beside the model")
    return companion(name)


def _weights(source: Graph, options: RunOptions, folder: str) -> Mapping[str, StoredTensor]:
    return module_weights(source, options.companion, folder)


def module_matrix(weights: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], folder: str) -> StoredTensor:
    """A weight of the module in a folder. FormatError if it is missing or has another shape."""
    found = weights.get(name)
    if found is None or tuple(found.shape) != shape:
        why = f"{name} of {folder} is missing or has another shape"
        raise FormatError(CODE, None, why, expected=list(shape), found=None if found is None else list(found.shape))
    return found


def _matrix(weights: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...], folder: str) -> np.ndarray:
    return np.asarray(module_matrix(weights, name, shape, folder).numpy(), np.float32)


@dataclass(frozen=True)
class DenseSettings:
    """What the config.json of a Dense module states: sizes, the activation by torch's class, bias and residual."""

    inner: int
    outer: int
    activation: str
    biased: bool
    added: bool

    @property
    def linear(self) -> bool:
        """Whether the module is one matrix alone."""
        return self.activation == "Identity" and not self.biased and not self.added


def dense_settings(source: Graph, folder: str) -> DenseSettings:
    """The settings of the Dense module in a folder."""
    said = module_config(source, folder)
    inner, outer = (checked(key, said.get(key), COUNT) for key in ("in_features", "out_features"))
    kind = checked("activation_function", said.get("activation_function", "torch.nn.Tanh"), word).rpartition(".")[2]
    if kind not in ACTIVATIONS:
        hint = f"Known: {', '.join(ACTIVATIONS)}"
        raise UnsupportedError(CODE, None, f"unknown activation {kind!r} of {folder}", hint=hint)
    biased, added = (
        checked(key, said.get(key, usual), flag) for key, usual in (("bias", True), ("use_residual", False))
    )
    return DenseSettings(inner, outer, kind, biased, added)


def _dense(source: Graph, options: RunOptions, folder: str) -> Stage:
    said, weights = dense_settings(source, folder), _weights(source, options, folder)
    inner, outer, added = said.inner, said.outer, said.added
    return Dense(
        _matrix(weights, "linear.weight", (outer, inner), folder),
        _matrix(weights, "linear.bias", (outer,), folder) if said.biased else None,
        ACTIVATIONS[said.activation],
        _matrix(weights, "residual.weight", (outer, inner), folder) if added and inner != outer else None,
        added,
    )


def _norm(source: Graph, options: RunOptions, folder: str) -> Stage:
    width, weights = (
        checked("dimension", module_config(source, folder).get("dimension"), COUNT),
        _weights(source, options, folder),
    )
    return Norm(*(_matrix(weights, f"norm.{name}", (width,), folder) for name in ("weight", "bias")))


def _normalize(source: Graph, options: RunOptions, folder: str) -> Stage:
    return normalized


STAGES: Mapping[str, Callable[[Graph, RunOptions, str], Stage]] = {
    "Dense": _dense,
    "LayerNorm": _norm,
    "Normalize": _normalize,
}
"""Readers of the modules after the pooling, by kind."""
