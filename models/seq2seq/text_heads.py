"""Heads of encoder-decoders that judge the text which the encoder reads: its classes, and answers in it.

The decoder reads the same text, moved by one token, in one pass without a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import (
    HF,
    MODEL,
    TEXT_CLASSIFICATION,
    Config,
    GraphBuilder,
    Key,
    Row,
    Task,
    Weight,
)
from ...runtime.contract.hyperparameter import SIZE, Listed, checked, word
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.attention import PLAIN_SCORES, Scores
from ..layers.encoder import Encoder, find_answers
from ..layers.linear import embedding, linear, own_embedding
from ..pipelines.encoder_tasks import run_encoder
from ..schema.encoder_hyperparameters import QUESTION_ANSWERING, LabelNames, task_of_class
from ..schema.encoder_weights import SPANS
from ..schema.hyperparameters import CLASSES, matrix
from .decoder import source_key_values
from .tasks import TEXT_TO_TEXT

HEAD = (
    *matrix("classifier_dense", "classification_head.dense", None, shape=("hidden", "hidden")),
    *matrix("classifier", "classification_head.out_proj", None, shape=("labels", "hidden")),
)
TASKS = (TEXT_CLASSIFICATION, QUESTION_ANSWERING)


@dataclass(frozen=True)
class HeadTask:
    """Hyper-parameter: the name of the model's task, by its class in config.json; text from text for other classes."""

    name: str = "task"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        classes = checked("architectures", source.get("architectures") or [""], Listed(word, 1))
        found = task_of_class(classes[0]) if names == HF else None
        return found if found in TASKS else TEXT_TO_TEXT

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {}


def label_rows(end: int) -> tuple[Row, ...]:
    """The hyper-parameters of heads but for their task; `end`: the end token that config.json implies."""
    return CLASSES[0], LabelNames(), Key("end", "eos_token_id", (), end, SIZE, at_most=("vocab",))


def head_rows(end: int) -> tuple[Row, ...]:
    """The hyper-parameters of heads; `end` as of `label_rows`."""
    return HeadTask(), *label_rows(end)


class ShiftedDecoder(Encoder):
    """A decoder that attends to an encoder's hidden states, and reads the encoder's text in one pass.

    Args:
        encoder: with its inputs.
        source: the encoder's hidden states [batch, length, hidden].
        wraps: whether the text is shifted around, so that its last token comes first (mBART's language), instead of
            after the decoder's first token.
    """

    def __init__(self, encoder: Encoder, source: Value, weights: Mapping[str, StoredTensor], *, wraps: bool) -> None:
        super().__init__(encoder.graph, encoder.config, weights)
        self.continue_graph(encoder)
        self._encoder, self._source, self.source_ids = encoder, source, encoder.ids
        self.ids = encoder.ids
        first = self._last_token() if wraps else self._start()
        self.ids = self.Concat(first, self.Slice(encoder.ids, [0], [-1], [1]), axis=1)

    def _start(self) -> Value:
        rows = self.Shape(self.source_ids, start=0, end=1)
        start: Value = self.Expand(self.Constant(value_int=self.config.decoder_start), self.Concat(rows, [1], axis=0))
        return start

    def _last_token(self) -> Value:
        """The last token of each text that is not padding, [batch, 1]."""
        padding = self.Equal(self.source_ids, self.Constant(value_int=self.config.pad))
        return self.last(self.source_ids, self.Not(padding))

    def last(self, rows: Value, chosen: Value) -> Value:
        """The last one of `rows` [batch, length, ...] that is `chosen`, bool [batch, length]: [batch, 1, ...]."""
        places = self.Mul(self.Cast(chosen, to=7), self.Add(self.positions(), 1))
        found: Value = self.GatherND(rows, self.ArgMax(places, axis=1, keepdims=1), batch_dims=1)
        return self.Unsqueeze(found, [1])

    def token_positions(self) -> Value:
        """Indices of the tokens, i64 [length]."""
        return self.positions()

    def visible(self) -> Value:
        """A token attends to itself and those before it, bool [batch, 1, length, length]."""
        return self.once("visible", lambda: self.Expand(self.LessOrEqual(self.distances(), 0), self._square()))

    def attend_to_itself(self, x: Value, layer: int, name: str, scores: Scores = PLAIN_SCORES) -> Value:
        """Causal self-attention with the weights ``NAME.{q,k,v,o}``."""
        return self.self_attention(x, name, scores.mask, scale=scores.scale)

    def attend_to_source(self, x: Value, layer: int, name: str, scale: float | None = None) -> Value:
        """Attention to the encoder's hidden states with the weights ``NAME.{q,k,v,o}``."""
        keys, values = source_key_values(self, self._source, name)
        y = self.Attention(self.heads(linear(self, x, f"{name}.q"), self.config.heads), keys, values,
                           self._encoder.visible(), scale=scale)  # fmt: skip
        return linear(self, self.merge_heads(self.Transpose(y, perm=[0, 2, 1, 3])), f"{name}.o")


def head_tasks(
    encode: Callable[[Encoder], Value], decode: Callable[[ShiftedDecoder, Value], Value], *, wraps: bool = False
) -> tuple[Task, ...]:
    """Text classification and question answering with an encoder-decoder.

    Args:
        encode, decode: add the layers, `decode` after the token embeddings; they return the hidden states.
        wraps: as of `ShiftedDecoder`.
    """

    def graphs(add: Callable[[ShiftedDecoder, Value], None]) -> dict[str, GraphBuilder]:
        def build(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
            encoder = Encoder(graph, config, weights)
            net = ShiftedDecoder(encoder, encode(encoder), weights, wraps=wraps)
            add(net, decode(net, embedding(net, net.ids, own_embedding(net, "decoder"))))

        return {MODEL: build}

    def task(name: str, add: Callable[[ShiftedDecoder, Value], None], weights: tuple[Weight, ...]) -> Task:
        return Task(name, graphs(add), run_encoder, weights, unneeded=("head.",))

    def answers(net: ShiftedDecoder, x: Value) -> None:
        find_answers(net, x)

    return task(TEXT_CLASSIFICATION, classify_end, HEAD), task(QUESTION_ANSWERING, answers, SPANS)


def classify_end(net: ShiftedDecoder, x: Value) -> None:
    """Output ``logits`` [batch, labels] of a hidden layer on the last end token."""
    ends = net.Equal(net.source_ids, net.Constant(value_int=net.config.end))
    y = net.Tanh(linear(net, net.Squeeze(net.last(x, ends), [1]), "classifier_dense"))
    net.output("logits", linear(net, y, "classifier"))
