"""Outputs of two models on the same tokens: error of logits and hidden states, KL divergence, likeliest tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ...models.pipelines.feature_extraction import WHOLE
from ...models.pipelines.text_model import embedding_rows
from ...models.seq2seq.encoder_decoder_model import EncoderDecoderModel
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph
from ..load.attached_files import tokenizer_of
from ..load.load_model import load
from ..load.vocabulary_check import check_vocabulary
from .perplexity import log_softmax

LOGITS = "logits"
MAX_TOKENS = 2048
"""Tokens of a prompt that are compared."""
GRADES = ((1e-4, "excellent"), (1e-2, "good"), (1e-1, "poor"))
"""Names of normalized mean squared errors below a bound, as maintainers of llama.cpp judge conversions."""
BAD = "different"


@dataclass(frozen=True)
class OutputDistance:
    """How far an output of the second model is from the first model's, over all prompts.

    Attributes:
        name: of the output, such as ``logits`` or ``last_hidden_state``.
        rows: vectors that were compared: one for each token, or for each text.
        nmse: squared error divided by the squared values of the first model.
        cosine: the smallest cosine of two vectors.
        kld: mean Kullback-Leibler divergence in nats of the second model's predictions; logits only.
        same_top: share of the rows whose greatest logit is the same; logits only.
    """

    name: str
    rows: int
    nmse: float
    cosine: float
    kld: float | None = None
    same_top: float | None = None

    @property
    def grade(self) -> str:
        """``excellent``, ``good``, ``poor`` or ``different``."""
        return next((name for bound, name in GRADES if self.nmse < bound), BAD)

    @property
    def ok(self) -> bool:
        """Whether the second model computes about the same."""
        return self.grade != BAD

    def to_json(self) -> dict[str, Any]:
        """Its fields and the grade; numbers that JSON does not have are text."""
        fields = {
            key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }
        return {**fields, "grade": self.grade}


def output_distances(
    source: Graph, made: Graph, prompts: Iterable[str], threads: int | None = None, images: Sequence[str] = ()
) -> list[OutputDistance]:
    """Run two models on the tokens that the first one's tokenizer makes of each prompt. An encoder-decoder is asked to
    predict the prompt itself; of models of embeddings the vectors of the prompts are compared too.

    Args:
        images: pictures of each prompt, which both models get as the first one prepares them.

    Raises UsageError for models without a common output, for prompts without tokens, and for pictures that a model does
    not take.
    """
    tokenizer = tokenizer_of(source)
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    one, other = (load(graph, threads=threads, activations="f32") for graph in (source, made))
    for prompt in prompts:
        ids, arrays = _asked(one, other, prompt, images) if images else (tokenizer.encode(prompt)[:MAX_TOKENS], {})
        if not ids:
            raise UsageError("E-TEXT-EMPTY", None, "a prompt has no tokens", hint="Leave out empty texts")
        for model in (one, other):
            check_vocabulary(max(ids), embedding_rows(model.graph))
        first, second = _outputs(one, ids, arrays), _outputs(other, ids, arrays)
        for name in first.keys() & second.keys():
            if first[name].shape != second[name].shape:
                why = f"the models compute {name} of different shapes"
                raise UsageError(
                    "E-VERIFY-SHAPE", None, why, expected=list(first[name].shape), found=list(second[name].shape)
                )
            width = first[name].shape[-1]
            pairs.setdefault(name, []).append((first[name].reshape(-1, width), second[name].reshape(-1, width)))
    if not pairs:
        why = "the models have no output in common"
        raise UsageError("E-VERIFY-OUTPUTS", None, why, hint="Compare models of one task")
    return [distance(name, pairs[name]) for name in sorted(pairs)]


def _asked(one: Any, other: Any, prompt: str, images: Sequence[str]) -> tuple[Sequence[int], Mapping[str, np.ndarray]]:
    """The ids of a prompt with pictures, and the arrays of these."""
    for model in (one, other):
        if not hasattr(model, "prompted"):
            why = "the model takes no pictures with a prompt"
            raise UsageError("E-LM-MODALITY", None, why, expected="a vision-language model")
    found = one.prompted(prompt, images)
    return found.ids, found.arrays


def _outputs(model: Any, ids: Sequence[int], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    if isinstance(model, EncoderDecoderModel):
        return model(input_ids=[ids], decoder_input_ids=[[model.settings.start, *ids]])
    found: dict[str, np.ndarray] = dict(model(input_ids=[ids], **arrays))
    return {**found, WHOLE: model.embed([ids])} if "embed" in model.verbs else found


def distance(name: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> OutputDistance:
    """How far the second of each pair of outputs [rows, width] is from the first."""
    first, second = (np.concatenate([pair[side] for pair in pairs]).astype(np.float64) for side in (0, 1))
    if not np.isfinite(second).all():
        return OutputDistance(name, len(first), math.inf, 0.0)
    power = float(np.sum(first**2))
    error = float(np.sum((first - second) ** 2))
    nmse = error / power if power else math.inf if error else 0.0
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = np.divide(np.sum(first * second, axis=1), lengths, out=np.ones_like(lengths), where=lengths > 0)
    if name != LOGITS or first.shape[1] < 2:
        return OutputDistance(name, len(first), nmse, float(cosines.min()))
    expected, predicted = log_softmax(first), log_softmax(second)
    kld = float(np.mean(np.sum(np.exp(expected) * (expected - predicted), axis=1)))
    same = float(np.mean(first.argmax(1) == second.argmax(1)))
    return OutputDistance(name, len(first), nmse, float(cosines.min()), max(kld, 0.0), same)
