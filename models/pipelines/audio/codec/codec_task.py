"""The task of audio codecs: two graphs, which encode samples as codes and decode them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .....runtime.contract.architecture import Config, GraphBuilder, RunOptions, Task
from .....runtime.ir.graph import Graph
from .....runtime.tensor.stored_tensor import StoredTensor
from ....layers.net import Net
from ....schema.codec_hyperparameters import AUDIO_CODEC, DECODER, ENCODER, LATENTS, QUANTIZED
from .codec_parts import Codec, part_name

if TYPE_CHECKING:
    from .codec_model import CodecModel


def codec_task(codec: Codec) -> Task:
    """The task of a model with the parts of a codec."""
    graphs = {ENCODER: _graph(codec.encoder), DECODER: _graph(codec.decoder)}
    variants = {LATENTS: _graph(codec.latents), QUANTIZED: _graph(codec.quantized)}
    for side, parts, build in (
        (ENCODER, codec.encode, codec.encoder_part),
        (DECODER, codec.decode, codec.decoder_part),
    ):
        if len(parts) > 1:
            variants |= {part_name(side, i): _graph(functools.partial(build, place=i)) for i in range(len(parts))}
    return Task(AUDIO_CODEC, graphs, functools.partial(run_codec, codec=codec), aliases=("codec",), variants=variants)


def _graph(build: Callable[[Net], None]) -> GraphBuilder:
    def graph(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        build(Net(graph, config, weights))

    return graph


def run_codec(graphs: Mapping[str, Graph], options: RunOptions, codec: Codec | None = None) -> CodecModel:
    """Both graphs as one model; `codec`: the parts that they are made of, if that is known."""
    from .codec_model import CodecModel

    return CodecModel(graphs, options, codec)
