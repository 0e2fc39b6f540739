"""The parts of a codec: what a family of codecs states of its encoder, quantizer and decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .....runtime.base.dataclass import dataclass
from .....runtime.contract.architecture import Config
from .....runtime.ir.graph import Value
from ....layers.net import Net
from ....schema.codec_hyperparameters import AUDIO, CODES, LATENTS, QUANTIZED, SAMPLES

Layer = Callable[[Net, Value], Value]
RecurrentLayer = Callable[[Net, Value, Sequence[Value]], tuple[Value, list[Value]]]
FEATURES = "features"
"""Input of a part of an encoder or decoder, [batch, channels, frames]."""
NEXT = "features.next"
"""Output of the part."""
STATE = "state"
"""Prefix of the names of states of recurrent parts."""


def one_frame(config: Config) -> int:
    """Samples of a frame of codes."""
    return int(config.hop)


@dataclass(frozen=True)
class LocalPart:
    """A part of an encoder or decoder, of convolutions and what works frame by frame.

    Attributes:
        layer: what it computes.
        step: samples that a frame of its result stands for.
        context: how many samples before and after a frame it attends to, if it does.
    """

    layer: Layer
    step: Callable[[Config], int] = one_frame
    context: Callable[[Config], tuple[int, int]] | None = None

    def compute(self, net: Net, x: Value) -> Value:
        """The result over whole audio."""
        return self.layer(net, x)


@dataclass(frozen=True)
class RecurrentPart:
    """A recurrent part of an encoder or decoder.

    Attributes:
        layer: what it computes from states [1, batch, channels], zeros if there are none, and the states after that.
        states: how many states there are.
        step: as of `LocalPart`.
    """

    layer: RecurrentLayer
    states: Callable[[Config], int]
    step: Callable[[Config], int] = one_frame

    def compute(self, net: Net, x: Value) -> Value:
        """The result over whole audio."""
        return self.layer(net, x, ())[0]


@dataclass(frozen=True)
class Codec:
    """The parts of a codec.

    Attributes:
        encode: [batch, hidden, frames] of samples [batch, channels, samples], part by part; the last one is not
            recurrent.
        quantize: for each quantizer codes i64 [batch, frames] of that.
        dequantize: [batch, hidden, frames] of codes: one value [batch, quantizers, frames], or one [batch, frames] for
            each quantizer of a `multiscale` codec.
        decode: samples of that, part by part; the first one is not recurrent.
        multiscale: whether quantizers have codes of different lengths.
    """

    encode: Sequence[LocalPart | RecurrentPart]
    quantize: Callable[[Net, Value], Sequence[Value]]
    dequantize: Callable[[Net, Sequence[Value]], Value]
    decode: Sequence[LocalPart | RecurrentPart]
    multiscale: bool = False

    def encoder(self, net: Net) -> None:
        """Samples to codes."""
        self._coded(net, self._encoded(net))

    def decoder(self, net: Net) -> None:
        """Codes to samples."""
        net.output(AUDIO, _computed(net, self.dequantize(net, self._codes(net)), self.decode))

    def latents(self, net: Net) -> None:
        """Samples to what the quantizer takes."""
        net.output(LATENTS, self._encoded(net))

    def quantized(self, net: Net) -> None:
        """Codes to what the decoder takes."""
        net.output(QUANTIZED, self.dequantize(net, self._codes(net)))

    def encoder_part(self, net: Net, place: int) -> None:
        """A part of the encoder."""
        last = place + 1 == len(self.encode)
        x = self._passed(net, self.encode[place], None if place else self._samples(net), None if last else NEXT)
        if last:
            self._coded(net, x)

    def decoder_part(self, net: Net, place: int) -> None:
        """A part of the decoder."""
        first = None if place else self.dequantize(net, self._codes(net))
        self._passed(net, self.decode[place], first, AUDIO if place + 1 == len(self.decode) else NEXT)

    def _passed(self, net: Net, part: LocalPart | RecurrentPart, x: Value | None, output: str | None) -> Value:
        """The result of a part, which is made an output unless `output` is None; of `FEATURES` if `x` is None."""
        x = net.input(FEATURES, "f32", ("batch", "channels", "frames")) if x is None else x
        last: list[Value] = []
        if isinstance(part, RecurrentPart):
            names = (f"{STATE}.{i}" for i in range(part.states(net.config)))
            x, last = part.layer(net, x, [net.input(name, "f32", (1, "batch", "channels")) for name in names])
        else:
            x = part.layer(net, x)
        if output is not None:
            net.output(output, x)
        for i, state in enumerate(last):
            net.output(f"{STATE}.{i}.next", state)
        return x

    def _encoded(self, net: Net) -> Value:
        return _computed(net, self._samples(net), self.encode)

    def _coded(self, net: Net, x: Value) -> None:
        found = self.quantize(net, x)
        if self.multiscale:
            for i, codes in enumerate(found):
                net.output(f"{CODES}.{i}", codes)
        else:
            net.output(CODES, net.Concat(*(net.Unsqueeze(codes, [1]) for codes in found), axis=1))

    def _samples(self, net: Net) -> Value:
        return net.input(SAMPLES, "f32", ("batch", net.config.channels, "samples"))

    def _codes(self, net: Net) -> list[Value]:
        if not self.multiscale:
            return [net.input(CODES, "i64", ("batch", "quantizers", "frames"))]
        names = (f"{CODES}.{i}" for i in range(net.config.quantizers))
        return [net.input(name, "i64", ("batch", f"frames_{i}")) for i, name in enumerate(names)]


def _computed(net: Net, x: Value, parts: Sequence[LocalPart | RecurrentPart]) -> Value:
    for part in parts:
        x = part.compute(net, x)
    return x


def part_name(side: str, place: int) -> str:
    """The name of the graph of a part of an encoder or decoder."""
    return f"{side}.{place}"
