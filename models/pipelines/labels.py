"""Labels: names of a classifier's outputs, and the probabilities of its logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import RunOptions
from ..tokenizer.readers.locate import settings
from .sentence_modules import ACTIVATIONS, SETTINGS

CONFIG = "config.json"


def configured(options: RunOptions) -> Mapping[str, Any]:
    """The content of config.json, empty without one."""
    return {} if options.source is None else settings(options.source, CONFIG)


def label_names(options: RunOptions, count: int) -> list[str]:
    """The names of `count` labels in the order of the logits; ``LABEL_0`` and so on where the files name none.

    Raises FormatError where they name another number of labels.
    """
    said = configured(options).get("id2label")
    named: Sequence[str] | None
    if isinstance(said, Mapping) and said:
        named = [str(said.get(str(index), f"LABEL_{index}")) for index in range(len(said))]
    else:
        named = None if options.config is None else options.config.values.get("label_names")
    if named is None or not len(named):
        return [f"LABEL_{index}" for index in range(count)]
    if len(named) != count:
        path = options.source.files[0] if options.source is not None and options.source.files else None
        raise FormatError(
            "E-MODEL-LABELS", path, "config.json names another number of labels", expected=count, found=len(named)
        )
    return list(named)


def is_multi_label(options: RunOptions) -> bool:
    """Whether the labels of one input exclude no other, so that each has a probability of its own."""
    return configured(options).get("problem_type") == "multi_label_classification"


def score_function(options: RunOptions) -> Callable[[np.ndarray], np.ndarray]:
    """The function that sentence-transformers applies to the logit of a reranker: the sigmoid unless the files say
    another."""
    said = configured(options)
    own = said.get("sentence_transformers")
    names = [
        own.get("activation_fn") if isinstance(own, Mapping) else None,
        said.get("sbert_ce_default_activation_function"),
        settings(options.source, SETTINGS).get("activation_fn") if options.source else None,
    ]
    name = next((str(name) for name in names if name), "Sigmoid").rpartition(".")[2]
    return ACTIVATIONS.get(name, sigmoid)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True), np.float32)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-np.asarray(logits, np.float64))), np.float32)
