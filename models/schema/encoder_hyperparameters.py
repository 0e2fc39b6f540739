"""Hyper-parameters that text encoders share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import FEATURE_EXTRACTION, HF, TEXT_CLASSIFICATION, Config, Key
from ...runtime.contract.hyperparameter import COUNT, MAX_INTEGER, NOT_NEGATIVE, Integer, Listed, checked, word
from .hyperparameters import CLASSES, INTERMEDIATE, LAYERS, OWN_HEAD_DIM, Vocabulary, act

FILL_MASK, TOKEN_CLASSIFICATION, QUESTION_ANSWERING = "fill-mask", "token-classification", "question-answering"
"""Names of tasks, as Hugging Face's pipelines have them."""
CLASSES_OF_TASKS = (
    ("ForMaskedLM", FILL_MASK),
    ("ForPreTraining", FILL_MASK),
    ("ForSequenceClassification", TEXT_CLASSIFICATION),
    ("ForTokenClassification", TOKEN_CLASSIFICATION),
    ("ForQuestionAnswering", QUESTION_ANSWERING),
)
"""What an encoder is used for, by the end of its class in config.json."""


@dataclass(frozen=True)
class EncoderTask:
    """Hyper-parameter: the name of the model's task, by its class in config.json; feature extraction for others."""

    name: str = "task"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        if names != HF:
            return FEATURE_EXTRACTION
        classes = checked("architectures", source.get("architectures") or ["Model"], Listed(word))
        return next((task for end, task in CLASSES_OF_TASKS if classes[0].endswith(end)), FEATURE_EXTRACTION)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {}


EPS = Key("eps", ("layer_norm_eps", "layer_norm_epsilon"), (), 1e-12, NOT_NEGATIVE)
PAD = Key("pad", "pad_token_id", (), 0, Integer(-MAX_INTEGER))
TYPES = Key("types", "type_vocab_size", (), 2)
"""Token types (segments); 0 or 1 where the model does not tell segments apart."""
CONTEXT = Key("context", ("max_position_embeddings", "n_positions"), (), 512, COUNT)
"""Rows of the position embedding."""
ENCODER = (
    EncoderTask(),
    Vocabulary(),
    CONTEXT,
    Key("hidden", ("hidden_size", "dim", "n_embd"), (), kind=COUNT),
    Key("layers", ("num_hidden_layers", "n_layers", "n_layer"), (), kind=LAYERS),
    Key("heads", ("num_attention_heads", "n_heads", "n_head"), (), kind=COUNT),
    OWN_HEAD_DIM,
    EPS,
    CLASSES[0],
)
"""Hyper-parameters of every text encoder."""
BERT = (*ENCODER, INTERMEDIATE, PAD, TYPES, act("gelu"))
"""Hyper-parameters of BERT and the models that kept its configuration."""
