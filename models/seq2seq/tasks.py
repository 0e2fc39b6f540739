"""Tasks of encoder-decoders: text from text with two graphs, and hidden states of the encoder alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ...runtime.contract.architecture import FEATURE_EXTRACTION, MODEL, Config, GraphBuilder, RunOptions, Task
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.encoder import Encoder, hidden_states
from ..layers.net import Net
from ..pipelines.encoder_tasks import run_encoder
from .decoder import CROSS, DECODER, ENCODER, KINDS, WITH_PAST, CrossDecoder, source_key_values

if TYPE_CHECKING:
    from .cross_language_model import CrossLanguageModel
    from .encoder_decoder_model import EncoderDecoderModel

EncoderNet = TypeVar("EncoderNet", bound=Net)

TEXT_TO_TEXT = "text2text-generation"
"""Hugging Face's name of the task."""


def encoder_decoder_task(encode: Callable[[Encoder], Value], decode: Callable[[CrossDecoder], None]) -> Task:
    """The task of a model whose encoder's layers `encode` adds, returning the hidden states, and whose decoder's layers
    `decode` adds. The decoder's cross-attention has the weights ``decoder.layers.I.cross.{q,k,v,o}``."""
    graphs = encoder_decoder_graphs(Encoder, encode, decode)
    return Task(TEXT_TO_TEXT, graphs, run_encoder_decoder, aliases=("seq2seq",))


def encoder_decoder_graphs(
    make: Callable[[Graph, Config, Mapping[str, StoredTensor]], EncoderNet],
    encode: Callable[[EncoderNet], Value],
    decode: Callable[[CrossDecoder], None],
    *,
    padded: bool = True,
) -> dict[str, GraphBuilder]:
    """Builders of both graphs; `make`: makes the encoder's net, `padded`: as of `CrossDecoder`, the others as of
    `encoder_decoder_task`."""

    def encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        net = make(graph, config, weights)
        x = encode(net)
        net.output("last_hidden_state", x)
        for i in range(config.decoder_layers) if fixed else ():
            for kind, value in zip(KINDS, source_key_values(net, x, f"decoder.layers.{i}.cross"), strict=True):
                net.output(CROSS.format(i=i, kind=kind), value)

    def decoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        decode(CrossDecoder(graph, config, weights, fixed=fixed, padded=padded))

    return {ENCODER: encoder, DECODER: decoder}


def encoder_task(encode: Callable[[Encoder], Value], unneeded: tuple[str, ...] = ()) -> Task:
    """The task of the encoder alone; `unneeded` as of `Task`."""

    def build(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        net = Encoder(graph, config, weights)
        hidden_states(net, encode(net))

    graphs: dict[str, GraphBuilder] = {MODEL: build}
    return Task(FEATURE_EXTRACTION, graphs, run_encoder, unneeded=unneeded, aliases=("hidden",))


def run_encoder_decoder(graphs: Mapping[str, Graph], options: RunOptions) -> EncoderDecoderModel:
    """Both graphs as one model."""
    from .encoder_decoder_model import EncoderDecoderModel

    return EncoderDecoderModel(graphs[ENCODER], decoder_model(graphs[DECODER], options), options)


def decoder_model(graph: Graph, options: RunOptions) -> CrossLanguageModel:
    """The model that runs the decoder's graph."""
    from ..generation.language_model import Placement
    from .cross_language_model import CrossLanguageModel

    placement = Placement(options.device, options.device_memory, options.gpu_layers)
    return CrossLanguageModel(graph, options.threads, options.activations, options.tokenizer, placement=placement)


def run_exported(graphs: Mapping[str, Graph], options: RunOptions) -> EncoderDecoderModel:
    """The graphs of ONNX files as one model; UsageError where one is not what its name says."""
    from .encoder_decoder_model import EncoderDecoderModel
    from .exported_decoder import ExportedDecoder

    decoder = ExportedDecoder(graphs[DECODER], graphs.get(WITH_PAST), options)
    return EncoderDecoderModel(graphs[ENCODER], decoder, replace(options, task=TEXT_TO_TEXT))
