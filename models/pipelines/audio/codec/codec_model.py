"""A runnable audio codec: samples become codes, and codes samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .....runtime.base.errors import FormatError, UsageError
from .....runtime.base.out_of_memory import memory_limited
from .....runtime.contract.architecture import RunOptions
from .....runtime.ir.graph import Graph
from ....preprocess.audio.resampling import mixed, resampled
from ....preprocess.audio.sound import Sound, opened_sound
from ....schema.codec_hyperparameters import CODES, ENCODER, LATENTS, QUANTIZED, SAMPLES
from ...task_model import TaskModel
from .audio_codes import AudioCodes, checked_codes, checked_levels, checked_scales, stacked
from .chunks import chunks_of, normalized, overlap_added
from .codec_parts import Codec
from .codec_stages import CodecStages
from .stages import Block

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Seconds = Callable[[float, float | None], None]
"""Called with the seconds of audio done, and their total."""


class CodecModel(TaskModel):
    """An encoder of samples and a decoder of codes.

    Args:
        graphs: made by `candle_convert.models.load`, by name.
        options: threads, device, activations and the hyper-parameters.
        codec: the parts that the graphs are made of; None if that is not known.
    """

    takes = "sounds"

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions, codec: Codec | None = None) -> None:
        self._graphs = dict(graphs)
        self.graph, self.options = graphs[ENCODER], options
        if options.config is None:
            why = "nothing says which codec the graphs are of"
            path = self.graph.files[0] if self.graph.files else None
            raise FormatError("E-CODEC-CONFIG", path, why, hint="Put the model's config.json beside them")
        self.config = options.config
        self._stages = CodecStages(self._graphs, options, codec)

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self._graphs

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return ("encode", "decode")

    @property
    def rate(self) -> int:
        """Samples a second."""
        return int(self.config.rate)

    @property
    def frame_rate(self) -> float:
        """Frames of codes a second."""
        return float(self.config.values.get("frame_rate") or self.config.rate / self.config.hop)

    @property
    def channels(self) -> int:
        """Channels of the audio."""
        return int(self.config.channels)

    @property
    def multiscale(self) -> bool:
        """Whether quantizers have codes of different lengths."""
        return self._graphs[ENCODER].outputs[0].name != CODES

    @property
    def chunked(self) -> bool:
        """Whether codes are [chunks, batch, quantizers, frames]."""
        return "chunk" in self.config.values

    @property
    def bandwidths(self) -> list[float]:
        """kbit/s by the number of quantizers: the first is that of one."""
        bits = math.log2(self.config.codebook_size) * self.frame_rate / 1000
        if self.multiscale:
            return [bits * sum(1 / stride for stride in self.config.strides)]
        return [bits * (count + 1) for count in range(self.config.quantizers)]

    @memory_limited
    def encode(
        self,
        samples: ArrayLike,
        rate: int | None = None,
        *,
        bandwidth: float | None = None,
        num_quantizers: int | None = None,
        padding_mask: ArrayLike | None = None,
    ) -> AudioCodes:
        """Codes of samples in -1 to 1: [samples], [channels, samples] or [batch, channels, samples].

        Args:
            rate: of the samples, a second; None for the model's. Others are resampled.
            bandwidth: most kbit/s; fewer quantizers are used then.
            num_quantizers: how many are used; None for all, or for those of the bandwidth.
            padding_mask: 1 for samples, 0 for padding [batch, samples] or [batch, channels, samples].

        One channel is repeated for models of several, and several become their mean for models of one.

        Raises UsageError for empty samples, values that are not numbers, and options that the model does not have.
        """
        count = self.quantizers(bandwidth, num_quantizers)
        x = self._prepared(samples, rate)
        if padding_mask is not None:
            mask = np.asarray(padding_mask, np.float32)
            if mask.shape not in ((len(x), x.shape[2]), x.shape, (len(x), 1, x.shape[2])):
                raise UsageError("E-CODEC-MASK", None, "the mask has another shape than the samples", found=mask.shape)
            x = x * mask.reshape(len(x), -1, x.shape[2])
        return self._encoded([x], count)

    @memory_limited
    def encode_sound(
        self,
        sound: Sound,
        *,
        bandwidth: float | None = None,
        num_quantizers: int | None = None,
        progress: Seconds | None = None,
    ) -> AudioCodes:
        """Codes of a sound of any length, rate and number of channels, which is read block by block.

        Args:
            sound: as `preprocess.audio.sound.Sound` describes it: a path, bytes, samples [frames, channels].
            bandwidth, num_quantizers: as of `encode`.
            progress: called with the seconds read, and their total.

        Raises what `encode` does, and FormatError for damaged files.
        """
        count = self.quantizers(bandwidth, num_quantizers)
        with opened_sound(sound, self.rate) as given:

            def blocks() -> Iterator[np.ndarray]:
                done = 0
                for block in given.blocks(self.rate, self.channels):
                    yield block.reshape(1, self.channels, -1)
                    done += block.shape[-1]
                    if progress is not None:
                        progress(done / self.rate, given.seconds)

            return self._encoded(blocks(), count)

    def _encoded(self, blocks: Iterable[np.ndarray], count: int) -> AudioCodes:
        """Codes of blocks [batch, channels, samples]."""
        length = 0

        def counted() -> Iterator[np.ndarray]:
            nonlocal length
            for block in blocks:
                length += block.shape[2]
                yield block

        if self.config.values.get("chunk") is None and not self.config.values.get("normalize"):
            codes = self._stages.encoded(counted(), count)
            made = codes if self.multiscale else codes[0][None] if self.chunked else codes[0]
            return AudioCodes(made, length=length)
        chunks, scales = [], []
        for chunk in self._chunks(counted()):
            if self.config.normalize:
                chunk, loudness = normalized(chunk)
                scales.append(loudness)
            chunks += self._stages.encoded([chunk], count)
        stack, padding = stacked(chunks)
        return AudioCodes(stack, np.stack(scales) if scales else None, length, padding)

    def _chunks(self, blocks: Iterable[np.ndarray]) -> Iterable[np.ndarray]:
        size = self.config.chunk
        if size is None:
            return [np.concatenate(list(blocks), axis=2)]
        return chunks_of(blocks, size, self.config.chunk_step or size)

    @memory_limited
    def decode(
        self, codes: AudioCodes | ArrayLike | Sequence[ArrayLike], scales: ArrayLike | Sequence[ArrayLike] | None = None
    ) -> np.ndarray:
        """Samples f32 [batch, channels, samples] at the model's `rate`.

        Args:
            codes: what `encode` returned, or codes in the shapes of `AudioCodes.codes`; fewer quantizers than the model
                has are the first ones.
            scales: f32 [chunks, batch, 1] of codes in an array.

        Raises UsageError for codes of other shapes, and for numbers that are not in the codebooks.
        """
        return np.concatenate(list(self.decoded_blocks(codes, scales)), axis=2)

    def decoded_blocks(
        self, codes: AudioCodes | ArrayLike | Sequence[ArrayLike], scales: ArrayLike | Sequence[ArrayLike] | None = None
    ) -> Iterator[np.ndarray]:
        """As `decode`, in blocks one after the other; codes are checked before the first one is asked for."""
        given = codes if isinstance(codes, AudioCodes) else AudioCodes(codes, scales)  # type: ignore[arg-type]
        blocks = self._joined(given) if self.chunked else self._stages.decoded(self._block(given.codes))
        return blocks if given.length is None else _limited(blocks, given.length)

    def latents(self, samples: ArrayLike, rate: int | None = None) -> np.ndarray:
        """The quantizer's input, f32 [batch, hidden, frames]; arguments as of `encode`. Only of models from weights."""
        x = self._stages.filled(self._prepared(samples, rate))
        found: np.ndarray = self._stages.run(LATENTS, {SAMPLES: x})[0]
        return found

    def quantized(self, codes: ArrayLike | Sequence[ArrayLike]) -> np.ndarray:
        """The decoder's input, f32 [batch, hidden, frames], of codes [batch, quantizers, frames]. Only of models from
        weights."""
        found: np.ndarray = self._stages.run(QUANTIZED, self._stages.named(self._block(codes)))[0]
        return found

    def _block(self, codes: Any) -> Block:
        """The codes that a run of the decoder takes; raises as `decode`."""
        return checked_levels(codes, self.config) if self.multiscale else [checked_codes(codes, 3, self.config)]

    def _joined(self, given: AudioCodes) -> Iterator[np.ndarray]:
        """The samples of chunks, which fade into each other where they overlap."""
        codes = np.asarray(given.codes)
        codes = checked_codes(codes[None] if codes.ndim == 3 else codes, 4, self.config)
        scales = checked_scales(given.scales, (codes.shape[0], codes.shape[1]), self.config)
        if not 0 <= given.padding < codes.shape[3]:
            raise UsageError("E-CODEC-CODES", None, "there is more padding than codes", found=given.padding)
        size = self.config.chunk
        if size is None and len(codes) > 1:
            raise UsageError("E-CODEC-CODES", None, f"codes have {len(codes):,} chunks", expected="1 chunk")
        pieces = self._pieces(codes, scales, given.padding)
        return pieces if size is None else overlap_added(pieces, self.config.chunk_step or size)

    def _pieces(self, codes: np.ndarray, scales: np.ndarray | None, padding: int) -> Iterator[np.ndarray]:
        """The samples of each chunk; in blocks if there is only one, of any length."""
        for i, chunk in enumerate(codes):
            frames = chunk.shape[2] - (padding if i + 1 == len(codes) else 0)
            blocks = self._stages.decoded([chunk[:, :, :frames]])
            for piece in blocks if self.config.chunk is None else [np.concatenate(list(blocks), axis=2)]:
                yield piece if scales is None else piece * scales[i].reshape(-1, 1, 1)

    def quantizers(self, bandwidth: float | None = None, num_quantizers: int | None = None) -> int:
        """Number of quantizers that are used; arguments as of `encode`. UsageError for what the model does not have."""
        total = int(self.config.quantizers)
        if self.multiscale and (bandwidth is not None or num_quantizers not in (None, total)):
            raise UsageError(
                "E-OPTION", None, "the codec has one bandwidth", expected=f"{self.bandwidths[0]:.2f} kbit/s"
            )
        if bandwidth is not None and num_quantizers is not None:
            raise UsageError("E-OPTION", None, "bandwidth and num_quantizers contradict each other", hint="Use one")
        if num_quantizers is not None and not 1 <= num_quantizers <= total:
            raise UsageError("E-OPTION", None, f"{num_quantizers:,} quantizers", expected=f"1 to {total:,}")
        if bandwidth is None:
            return total if num_quantizers is None else num_quantizers
        known = self.bandwidths
        count = sum(each <= bandwidth * (1 + 1e-6) for each in known)
        if not count or not math.isfinite(bandwidth):
            expected = f"{known[0]:.2f} to {known[-1]:.2f} kbit/s"
            raise UsageError("E-OPTION", None, f"a bandwidth of {bandwidth:g} kbit/s", expected=expected)
        return count

    def _prepared(self, samples: ArrayLike, rate: int | None) -> np.ndarray:
        """f32 [batch, channels, samples] at the model's rate."""
        x = np.asarray(samples, np.float32)
        x = x.reshape((1,) * (3 - x.ndim) + x.shape) if 0 < x.ndim < 3 else x
        if x.ndim != 3 or not x.size:
            expected = "[samples], [channels, samples] or [batch, channels, samples]"
            raise UsageError(
                "E-CODEC-SAMPLES", None, "there are no samples", expected=expected, found=np.shape(samples)
            )
        if not np.isfinite(x).all():
            raise UsageError("E-CODEC-SAMPLES", None, "samples are not finite numbers")
        if self.channels != 1 and x.shape[1] not in (1, self.channels):
            why = f"audio of {x.shape[1]:,} channels for a model of {self.channels}"
            raise UsageError("E-CODEC-CHANNELS", None, why, expected=f"1 or {self.channels} channels")
        x = np.stack([mixed(row.T, self.channels).T for row in x])
        if rate is None or rate == self.rate:
            return x
        if rate < 1:
            raise UsageError("E-OPTION", None, f"a rate of {rate} samples a second", expected="1 or more")
        rows = (np.concatenate(list(resampled([row.T], rate, self.rate, self.channels))).T for row in x)
        return np.stack(list(rows))


def _limited(blocks: Iterable[np.ndarray], length: int) -> Iterator[np.ndarray]:
    """The first `length` samples of blocks."""
    left = length
    for block in blocks:
        yield block[:, :, :left]
        left = max(0, left - block.shape[2])
