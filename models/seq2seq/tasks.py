"""Tasks of encoder-decoders: text from text with two graphs, and hidden states of the encoder alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...runtime.contract.architecture import FEATURE_EXTRACTION, MODEL, Config, GraphBuilder, RunOptions, Task
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.tensor import Tensor
from ..layers.encoder import Encoder, hidden_states
from ..pipelines.encoder_tasks import run_encoder
from .decoder import CROSS, KINDS, CrossDecoder, source_key_values

if TYPE_CHECKING:
    from .encoder_decoder_model import EncoderDecoderModel

TEXT_TO_TEXT = "text2text-generation"
"""Hugging Face's name of the task."""
ENCODER, DECODER = "encoder", "decoder"
"""Names of the graphs."""


def encoder_decoder_task(encode: Callable[[Encoder], Value], decode: Callable[[CrossDecoder], None]) -> Task:
    """The task of a model whose encoder's layers `encode` adds, returning the hidden states, and whose decoder's layers
    `decode` adds. The decoder's cross-attention has the weights ``decoder.layers.I.cross.{q,k,v,o}``."""

    def encoder(graph: Graph, config: Config, weights: Mapping[str, Tensor], *, fixed: bool) -> None:
        net = Encoder(graph, config, weights)
        x = encode(net)
        net.output("last_hidden_state", x)
        for i in range(config.decoder_layers) if fixed else ():
            for kind, value in zip(KINDS, source_key_values(net, x, f"decoder.layers.{i}.cross"), strict=True):
                net.output(CROSS.format(i=i, kind=kind), value)

    def decoder(graph: Graph, config: Config, weights: Mapping[str, Tensor], *, fixed: bool) -> None:
        decode(CrossDecoder(graph, config, weights, fixed=fixed))

    return Task(TEXT_TO_TEXT, {ENCODER: encoder, DECODER: decoder}, run_encoder_decoder, aliases=("seq2seq",))


def encoder_task(encode: Callable[[Encoder], Value], unneeded: tuple[str, ...] = ()) -> Task:
    """The task of the encoder alone; `unneeded` as of `Task`."""

    def build(graph: Graph, config: Config, weights: Mapping[str, Tensor], *, fixed: bool) -> None:
        net = Encoder(graph, config, weights)
        hidden_states(net, encode(net))

    graphs: dict[str, GraphBuilder] = {MODEL: build}
    return Task(FEATURE_EXTRACTION, graphs, run_encoder, unneeded=unneeded, aliases=("hidden",))


def run_encoder_decoder(graphs: Mapping[str, Graph], options: RunOptions) -> EncoderDecoderModel:
    """Both graphs as one model."""
    from .encoder_decoder_model import EncoderDecoderModel

    return EncoderDecoderModel(graphs[ENCODER], graphs[DECODER], options)
