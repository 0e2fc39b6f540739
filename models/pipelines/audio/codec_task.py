"""The task of audio codecs: two graphs, which encode samples as codes and decode them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config, GraphBuilder, RunOptions, Task
from ....runtime.ir.graph import Graph, Value
from ....runtime.tensor.tensor import Tensor
from ...layers.net import Net
from ...schema.codec_hyperparameters import AUDIO, AUDIO_CODEC, CODES, DECODER, ENCODER, LATENTS, QUANTIZED, SAMPLES

if TYPE_CHECKING:
    from .codec import CodecModel

Layer = Callable[[Net, Value], Value]


@dataclass(frozen=True)
class Codec:
    """The parts of a codec.

    Attributes:
        encode: [batch, hidden, frames] of samples [batch, channels, samples].
        quantize: for each quantizer codes i64 [batch, frames] of that.
        dequantize: [batch, hidden, frames] of codes: one value [batch, quantizers, frames], or one [batch, frames] for
            each quantizer of a `multiscale` codec.
        decode: samples of that.
        multiscale: whether quantizers have codes of different lengths.
    """

    encode: Layer
    quantize: Callable[[Net, Value], Sequence[Value]]
    dequantize: Callable[[Net, Sequence[Value]], Value]
    decode: Layer
    multiscale: bool = False

    def encoder(self, net: Net) -> None:
        """Samples to codes."""
        found = self.quantize(net, self.encode(net, self._samples(net)))
        if self.multiscale:
            for i, codes in enumerate(found):
                net.output(f"{CODES}.{i}", codes)
        else:
            net.output(CODES, net.Concat(*(net.Unsqueeze(codes, [1]) for codes in found), axis=1))

    def decoder(self, net: Net) -> None:
        """Codes to samples."""
        net.output(AUDIO, self.decode(net, self.dequantize(net, self._codes(net))))

    def latents(self, net: Net) -> None:
        """Samples to what the quantizer takes."""
        net.output(LATENTS, self.encode(net, self._samples(net)))

    def quantized(self, net: Net) -> None:
        """Codes to what the decoder takes."""
        net.output(QUANTIZED, self.dequantize(net, self._codes(net)))

    def _samples(self, net: Net) -> Value:
        return net.input(SAMPLES, "f32", ("batch", net.config.channels, "samples"))

    def _codes(self, net: Net) -> list[Value]:
        if not self.multiscale:
            return [net.input(CODES, "i64", ("batch", "quantizers", "frames"))]
        names = (f"{CODES}.{i}" for i in range(net.config.quantizers))
        return [net.input(name, "i64", ("batch", f"frames_{i}")) for i, name in enumerate(names)]


def codec_task(codec: Codec) -> Task:
    """The task of a model with the parts of a codec."""
    graphs = {ENCODER: _graph(codec.encoder), DECODER: _graph(codec.decoder)}
    variants = {LATENTS: _graph(codec.latents), QUANTIZED: _graph(codec.quantized)}
    return Task(AUDIO_CODEC, graphs, run_codec, aliases=("codec",), variants=variants)


def _graph(build: Callable[[Net], None]) -> GraphBuilder:
    def graph(graph: Graph, config: Config, weights: Mapping[str, Tensor], *, fixed: bool) -> None:
        build(Net(graph, config, weights))

    return graph


def run_codec(graphs: Mapping[str, Graph], options: RunOptions) -> CodecModel:
    """Both graphs as one model."""
    from .codec import CodecModel

    return CodecModel(graphs, options)
