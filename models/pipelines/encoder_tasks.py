"""Tasks of text encoders: one graph each, of the family's layers and the head of the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import (
    COMPONENT,
    FEATURE_EXTRACTION,
    MODEL,
    TEXT_CLASSIFICATION,
    Component,
    Config,
    GraphBuilder,
    RunOptions,
    Task,
    Weight,
)
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.encoder import Encoder, UnpaddedEncoder, classify_tokens, find_answers, hidden_states
from ..layers.packed_encoder import PACKED, PackedEncoder, packed_hidden_states
from ..schema.encoder_hyperparameters import QUESTION_ANSWERING, TOKEN_CLASSIFICATION
from ..schema.encoder_weights import CLASSIFIER, SPANS

if TYPE_CHECKING:
    from .encoder_model import EncoderModel


@dataclass(frozen=True)
class Head:
    """The layers of a task after the hidden states.

    Attributes:
        task: Hugging Face's name of the pipeline.
        add: declares the outputs, from the hidden states [batch, length, hidden].
        weights: rows of weights that only this task needs.
        aliases: other names of the task.
    """

    task: str
    add: Callable[[Encoder, Value], None]
    weights: tuple[Weight, ...] = ()
    aliases: tuple[str, ...] = ()


FEATURES = Head(FEATURE_EXTRACTION, hidden_states, aliases=("hidden",))
TOKENS = Head(TOKEN_CLASSIFICATION, classify_tokens, CLASSIFIER, aliases=("ner",))
ANSWERS = Head(QUESTION_ANSWERING, find_answers, SPANS)


def sequence_head(add: Callable[[Encoder, Value], None], weights: tuple[Weight, ...] = CLASSIFIER) -> Head:
    """The head of a text classifier."""
    return Head(TEXT_CLASSIFICATION, add, weights, aliases=("classification",))


def encoder_tasks(build: Callable[[Encoder], Value], heads: Sequence[Head]) -> tuple[Task, ...]:
    """The tasks of an encoder whose inputs and layers `build` adds; it returns the hidden states. The first head is
    that of a model whose class is unknown. Hidden states have a variant for packed texts."""
    packed = {PACKED: _graph(build, packed_hidden_states, PackedEncoder)}
    return tuple(
        Task(
            head.task,
            {MODEL: _graph(build, head.add)},
            run_encoder,
            head.weights,
            aliases=head.aliases,
            variants=packed if head is FEATURES else {},
        )
        for head in heads
    )


def encoder_component(build: Callable[[Encoder], Value], add: Callable[[Encoder, Value], None]) -> Component:
    """An encoder of prompts in a pipeline of diffusers, whose only input is ``input_ids``."""

    def run(graphs: Mapping[str, Graph], options: RunOptions) -> EncoderModel:
        return run_encoder({MODEL: graphs[COMPONENT]}, options)

    return Component({COMPONENT: _graph(build, add, UnpaddedEncoder)}, run)


def _graph(
    build: Callable[[Encoder], Value], add: Callable[[Encoder, Value], None], kind: type[Encoder] = Encoder
) -> GraphBuilder:
    def graph(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        net = kind(graph, config, weights)
        add(net, build(net))

    return graph


def run_encoder(graphs: Mapping[str, Graph], options: RunOptions) -> EncoderModel:
    """The only graph as an encoder."""
    from .encoder_model import EncoderModel

    return EncoderModel(graphs[MODEL], options)
