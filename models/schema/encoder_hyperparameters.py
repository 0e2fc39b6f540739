"""Hyper-parameters that text encoders share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import FEATURE_EXTRACTION, GGUF, HF, TEXT_CLASSIFICATION, Config, Key, Row
from ...runtime.contract.hyperparameter import (
    COUNT,
    MAX_INTEGER,
    NOT_NEGATIVE,
    Integer,
    Listed,
    ParameterError,
    checked,
    mapping,
    shown,
    word,
)
from ...runtime.tensor.stored_tensor import StoredTensor
from .hyperparameters import CLASSES, INTERMEDIATE, LAYERS, OWN_HEAD_DIM, Vocabulary, act
from .hyperparameters import QUESTION_ANSWERING as QUESTION_ANSWERING
from .hyperparameters import TOKEN_CLASSIFICATION as TOKEN_CLASSIFICATION

FILL_MASK = "fill-mask"
"""The name of a task, as Hugging Face's pipelines have it."""
CLASSES_OF_TASKS = (
    ("ForMaskedLM", FILL_MASK),
    ("ForPreTraining", FILL_MASK),
    ("ForSequenceClassification", TEXT_CLASSIFICATION),
    ("ForTokenClassification", TOKEN_CLASSIFICATION),
    ("ForQuestionAnswering", QUESTION_ANSWERING),
)
"""Task of an encoder, by the ending of its class in config.json."""

BERT_BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
"""Sizes that transformers gives a config.json of BERT and RoBERTa without them."""


def task_of_class(name: str) -> str | None:
    """The task of a class of transformers; None for classes without a head, and of decoders."""
    return next((task for end, task in CLASSES_OF_TASKS if name.endswith(end)), None)


@dataclass(frozen=True)
class EncoderTask:
    """Hyper-parameter: the name of the model's task, by its class in config.json; feature extraction for others.
    `settle_gguf` finds it in a GGUF file.

    Attributes:
        stem: how the names of transformers' classes begin, if config.json states the class.
    """

    stem: str = ""
    name: str = "task"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        if names != HF:
            return FEATURE_EXTRACTION
        classes = checked("architectures", source.get("architectures") or ["Model"], Listed(word))
        return task_of_class(classes[0]) or FEATURE_EXTRACTION

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF or not self.stem:
            return {}
        end = next((end for end, task in CLASSES_OF_TASKS if task == config.task), "Model")
        return {"architectures": [self.stem + end]}


@dataclass(frozen=True)
class TokenizerKey(Key):
    """Hyper-parameter that GGUF files have among the keys of the tokenizer, which writes it."""

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return super().write(names, config) if names == HF else {}


@dataclass(frozen=True)
class GGUFConstant:
    """Hyper-parameter with one possible value, which GGUF files state under `key`."""

    name: str
    key: str
    value: bool | str

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        said = source.get(self.key, self.value) if names == GGUF else self.value
        if said != self.value:
            raise ParameterError(self.key, f"{shown(said)} is not {shown(self.value)}")
        return self.value

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: self.value} if names == GGUF else {}


@dataclass(frozen=True)
class LabelNames:
    """Hyper-parameter: names of the labels of a classifier in the order of its logits, None if not stated."""

    name: str = "label_names"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[str] | None:
        if names != HF:
            key = LABELS_KEY if names == GGUF else self.name
            said = source.get(key)
            return None if not said else checked(key, said, Listed(word))
        said = checked("id2label", source.get("id2label") or {}, mapping)
        if not said:
            return None
        if {str(key) for key in said} != {str(index) for index in range(len(said))}:
            raise ParameterError("id2label", "its keys are not the indices of the labels")
        by_index = {int(key): name for key, name in said.items()}
        return checked("id2label", [str(by_index[index]) for index in range(len(said))], Listed(word))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if config.task not in CLASSIFIERS or config.labels is None:
            return {}
        labels = config.label_names or []
        labels = labels if len(labels) == config.labels else [f"LABEL_{index}" for index in range(config.labels)]
        if names == GGUF:
            return {LABELS_KEY: labels}
        return {
            "id2label": {str(index): name for index, name in enumerate(labels)},
            "label2id": {name: index for index, name in enumerate(labels)},
        }


LABELS_KEY = "classifier.output_labels"
CLASSIFIERS = (
    TEXT_CLASSIFICATION,
    "audio-classification",
    "image-classification",
    "image-segmentation",
    "object-detection",
    "text-recognition",
)
"""Tasks whose models have names of labels."""
CAUSAL = GGUFConstant("causal", "attention.causal", False)
UNSCALED = GGUFConstant("rope_scaling", "rope.scaling.type", "none")
EPS = Key("eps", ("layer_norm_eps", "layer_norm_epsilon"), "attention.layer_norm_epsilon", 1e-12, NOT_NEGATIVE)
PAD = TokenizerKey("pad", "pad_token_id", "tokenizer.ggml.padding_token_id", 0, Integer(-MAX_INTEGER))
TYPES = TokenizerKey(
    "types", "type_vocab_size", "tokenizer.ggml.token_type_count", lambda config: None if config.names == GGUF else 2
)
"""Token types (segments); 0 or 1 where the model does not tell segments apart."""
CONTEXT = Key("context", ("max_position_embeddings", "n_positions"), "context_length", 512, COUNT)
"""Rows of the position embedding."""
ENCODER = (
    EncoderTask(),
    Vocabulary(),
    CONTEXT,
    Key("hidden", ("hidden_size", "dim", "n_embd"), "embedding_length", kind=COUNT),
    Key("layers", ("num_hidden_layers", "n_layers", "n_layer"), "block_count", kind=LAYERS),
    Key("heads", ("num_attention_heads", "n_heads", "n_head"), "attention.head_count", kind=COUNT),
    OWN_HEAD_DIM,
    EPS,
    CLASSES[0],
    LabelNames(),
    CAUSAL,
)
"""Hyper-parameters of every text encoder."""
BERT = (*ENCODER, INTERMEDIATE, PAD, TYPES, act("gelu"))
"""Hyper-parameters of BERT and the models that kept its configuration."""


def of_class(stem: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """`rows` for models whose classes in config.json begin with `stem`."""
    return tuple(EncoderTask(stem) if isinstance(row, EncoderTask) else row for row in rows)


def settle_gguf(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the task from the weights of a GGUF file, which does not state it. Where the model tells no segments apart,
    their embedding is one row of zeros: transformers' classes need it."""
    if config.names != GGUF:
        return
    if "classifier.weight" in weights:
        config.values["task"] = TEXT_CLASSIFICATION
    if "types" in config.values and "types.weight" not in weights:
        config.values["types"] = 1
        weights["types.weight"] = StoredTensor.of(np.zeros((1, config.hidden), np.float32))
