"""A runnable audio codec: samples become codes, and codes samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import RunOptions
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...preprocess.audio.resampling import mixed, resampled
from ...schema.codec_hyperparameters import CODES, DECODER, ENCODER, LATENTS, QUANTIZED, SAMPLES
from ..task_model import TaskModel, opened
from .fewer_quantizers import fewer_quantizers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SILENCE = 1e-8
"""Added to the loudness by which chunks are divided."""


@dataclass(frozen=True, eq=False)
class AudioCodes:
    """What a codec makes of audio.

    Attributes:
        codes: i64 [batch, quantizers, frames]; [chunks, batch, quantizers, frames] of EnCodec; of codecs whose
            quantizers have codes of different lengths (SNAC) a list of [batch, frames], one for each quantizer.
        scales: f32 [chunks, batch, 1], the loudness of each chunk, if the codec normalizes it.
        length: samples that were encoded; decoding gives as many.
        padding: frames at the end of the last chunk that hold no audio.
    """

    codes: np.ndarray | list[np.ndarray]
    scales: np.ndarray | None = None
    length: int | None = None
    padding: int = 0


class CodecModel(TaskModel):
    """An encoder of samples and a decoder of codes.

    Args:
        graphs: made by `candle_convert.models.load`, by name.
        options: threads, device, activations and the hyper-parameters.
    """

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self._graphs = dict(graphs)
        self.graph, self.options = graphs[ENCODER], options
        if options.config is None:
            why = "nothing says which codec the graphs are of"
            raise FormatError("E-CODEC-CONFIG", _path(self.graph), why, hint="Put the model's config.json beside them")
        self.config = options.config
        self._sessions: dict[Any, Session] = {}

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self._graphs

    @property
    def verbs(self) -> tuple[str, ...]:
        """What the model can do."""
        return ("encode", "decode")

    @property
    def rate(self) -> int:
        """Samples a second."""
        return int(self.config.rate)

    @property
    def channels(self) -> int:
        """Channels of the audio."""
        return int(self.config.channels)

    @property
    def multiscale(self) -> bool:
        """Whether quantizers have codes of different lengths."""
        return self._graphs[ENCODER].outputs[0].name != CODES

    @property
    def bandwidths(self) -> list[float]:
        """kbit/s by the number of quantizers: the first is that of one."""
        frames = self.config.values.get("frame_rate") or self.config.rate / self.config.hop
        bits = math.log2(self.config.codebook_size) * frames / 1000
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
        count = self._count(bandwidth, num_quantizers)
        x = self._prepared(samples, rate)
        if padding_mask is not None:
            mask = np.asarray(padding_mask, np.float32)
            if mask.shape not in ((len(x), x.shape[2]), x.shape, (len(x), 1, x.shape[2])):
                raise UsageError("E-CODEC-MASK", None, "the mask has another shape than the samples", found=mask.shape)
            x = x * mask.reshape(len(x), -1, x.shape[2])
        length = x.shape[2]
        if self.multiscale:
            return AudioCodes(self._run(ENCODER, {SAMPLES: self._filled(x)}), length=length)
        if "chunk" not in self.config.values:
            return AudioCodes(self._codes(self._filled(x), count), length=length)
        size, step = self._chunk(length)
        chunks, scales = [], []
        for start in range(0, length, step):
            chunk = x[:, :, start : start + size]
            if self.config.normalize:
                loudness = np.sqrt(np.square(chunk.mean(1, keepdims=True)).mean(-1, keepdims=True)) + np.float32(
                    SILENCE
                )
                chunk = chunk / loudness
                scales.append(loudness[:, 0])
            chunks.append(self._codes(self._filled(chunk), count))
        frames = chunks[0].shape[2]
        padding = frames - chunks[-1].shape[2]
        codes = np.stack([np.pad(each, ((0, 0), (0, 0), (0, frames - each.shape[2]))) for each in chunks])
        return AudioCodes(codes, np.stack(scales) if scales else None, length, padding)

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
        given = codes if isinstance(codes, AudioCodes) else AudioCodes(codes, scales)  # type: ignore[arg-type]
        if self.multiscale:
            y = self._run(DECODER, self._levels(given.codes))[0]
        elif "chunk" not in self.config.values:
            y = self._decoded(self._checked(given.codes, 3))
        else:
            y = self._joined(given)
        return y if given.length is None else y[:, :, : given.length]

    def latents(self, samples: ArrayLike, rate: int | None = None) -> np.ndarray:
        """What the quantizer takes, f32 [batch, hidden, frames]; arguments as of `encode`. Only of models from
        weights."""
        found: np.ndarray = self._run(LATENTS, {SAMPLES: self._filled(self._prepared(samples, rate))})[0]
        return found

    def quantized(self, codes: ArrayLike | Sequence[ArrayLike]) -> np.ndarray:
        """What the decoder takes, f32 [batch, hidden, frames], of codes [batch, quantizers, frames]. Only of models
        from weights."""
        feeds = self._levels(codes) if self.multiscale else {CODES: self._checked(codes, 3)}
        found: np.ndarray = self._run(QUANTIZED, feeds)[0]
        return found

    def _joined(self, given: AudioCodes) -> np.ndarray:
        """The samples of chunks, which fade into each other where they overlap."""
        codes = np.asarray(given.codes)
        codes = self._checked(codes[None] if codes.ndim == 3 else codes, 4)
        scales = self._scales(given.scales, (codes.shape[0], codes.shape[1]))
        if not 0 <= given.padding < codes.shape[3]:
            raise UsageError("E-CODEC-CODES", None, "there is more padding than codes", found=given.padding)
        size, step = self._chunk(0)
        if not size and len(codes) > 1:
            raise UsageError("E-CODEC-CODES", None, f"codes have {len(codes):,} chunks", expected="1 chunk")
        pieces = []
        for i, chunk in enumerate(codes):
            last = i + 1 == len(codes)
            piece = self._decoded(chunk[:, :, : chunk.shape[2] - given.padding] if last else chunk)
            pieces.append(piece if scales is None else piece * scales[i].reshape(-1, 1, 1))
        return pieces[0] if not size else overlap_added(pieces, step)

    def _decoded(self, codes: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._run(DECODER, {CODES: codes})[0]
        return found

    def _codes(self, x: np.ndarray, count: int) -> np.ndarray:
        found: np.ndarray = self._run(ENCODER, {SAMPLES: x}, count)[0]
        return found[:, :count]

    def _chunk(self, length: int) -> tuple[int, int]:
        """Samples of a chunk, and from the start of one to that of the next one; `length` without chunks."""
        size = length if self.config.chunk is None else self.config.chunk
        return size, self.config.chunk_step or size

    def _count(self, bandwidth: float | None, num_quantizers: int | None) -> int:
        """How many quantizers are used."""
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

    def _filled(self, x: np.ndarray) -> np.ndarray:
        """With zeros behind the samples, up to a multiple of the length that the encoder needs."""
        missing = -x.shape[2] % (self.config.values.get("multiple") or 1)
        return np.pad(x, ((0, 0), (0, 0), (0, missing))) if missing else x

    def _checked(self, given: Any, rank: int) -> np.ndarray:
        """Codes i64 with so many dimensions."""
        codes: np.ndarray = np.asarray(given)
        codes = codes[0] if rank == 3 and codes.ndim == 4 and len(codes) == 1 else codes
        codes = codes[(None,) * max(0, rank - codes.ndim)]
        total, size = int(self.config.quantizers), int(self.config.codebook_size)
        if codes.ndim != rank or not codes.size or codes.dtype.kind not in "iu":
            expected = "integers [batch, quantizers, frames]"
            raise UsageError("E-CODEC-CODES", None, "these are not codes", expected=expected, found=np.shape(given))
        if codes.shape[-2] > total:
            why = f"codes of {codes.shape[-2]:,} quantizers"
            raise UsageError("E-CODEC-CODES", None, why, expected=f"1 to {total}")
        check_range(codes, size)
        return codes.astype(np.int64)

    def _levels(self, given: Any) -> dict[str, np.ndarray]:
        """The codes of each quantizer, for a codec whose quantizers have codes of different lengths."""
        strides, size = self.config.strides, int(self.config.codebook_size)
        expected = f"{len(strides)} arrays of integers [batch, frames] whose lengths are as {strides[::-1]}"
        levels = [np.asarray(level) for level in given] if isinstance(given, list | tuple) else []
        levels = [level[None] if level.ndim == 1 else level for level in levels]
        shapes = {(len(level), level.shape[-1] * stride) for level, stride in zip(levels, strides, strict=False)}
        fits = len(levels) == len(strides) and len(shapes) == 1 and all(level.ndim == 2 for level in levels)
        if not fits or not all(level.size and level.dtype.kind in "iu" for level in levels):
            raise UsageError("E-CODEC-CODES", None, "these are not codes of the codec", expected=expected)
        frames, window = levels[0].shape[1] * strides[0], self.config.values.get("window") or 1
        if frames % window:
            why = f"codes of {frames:,} frames"
            raise UsageError("E-CODEC-CODES", None, why, expected=f"a multiple of {window} frames")
        for level in levels:
            check_range(level, size)
        return {f"{CODES}.{i}": level.astype(np.int64) for i, level in enumerate(levels)}

    def _scales(self, given: Any, shape: tuple[int, int]) -> np.ndarray | None:
        """Scales f32 [chunks, batch], None if the model does not normalize."""
        if given is None or (isinstance(given, list | tuple) and all(each is None for each in given)):
            if self.config.normalize:
                raise UsageError(
                    "E-CODEC-SCALES", None, "codes of this model need scales", expected="[chunks, batch, 1]"
                )
            return None
        scales = np.asarray(given, np.float32)
        if scales.size != math.prod(shape) or not np.isfinite(scales).all():
            expected = f"finite numbers [{shape[0]}, {shape[1]}, 1]"
            raise UsageError(
                "E-CODEC-SCALES", None, "scales do not fit the codes", expected=expected, found=scales.shape
            )
        return scales.reshape(shape)

    def _run(self, name: str, feeds: dict[str, np.ndarray], count: int | None = None) -> list[np.ndarray]:
        if (name, count) not in self._sessions:
            self._sessions[name, count] = opened(self._graph(name, count), self.options)
        results: list[np.ndarray] = self._sessions[name, count].run(None, feeds)
        return results

    def _graph(self, name: str, count: int | None) -> Graph:
        variant = self.options.variant
        graph = self._graphs[name] if name in self._graphs else variant(name) if variant is not None else None
        if graph is None:
            raise UsageError("E-CODEC-PART", None, f"the file has no graph that computes {name}", expected="weights")
        return graph if count is None else fewer_quantizers(graph, count)


def _path(graph: Graph) -> str | None:
    return graph.files[0] if graph.files else None


def check_range(codes: np.ndarray, size: int) -> None:
    """UsageError for numbers that a codebook of that size does not have."""
    low, high = int(codes.min()), int(codes.max())
    if low < 0 or high >= size:
        found = low if low < 0 else high
        raise UsageError("E-CODEC-CODES", None, f"{found:,} is not a code", expected=f"0 to {size - 1:,}")


def overlap_added(pieces: Sequence[np.ndarray], step: int) -> np.ndarray:
    """The sum of pieces [batch, channels, samples] that start `step` samples after each other, weighted by triangles
    and divided by the sum of the weights."""
    size = pieces[0].shape[2]
    places = np.linspace(0, 1, size + 2, dtype=np.float32)[1:-1]
    weight = np.float32(0.5) - np.abs(places - np.float32(0.5))
    total = max(i * step + piece.shape[2] for i, piece in enumerate(pieces))
    result = np.zeros((*pieces[0].shape[:2], total), np.float32)
    weights = np.zeros(total, np.float32)
    for i, piece in enumerate(pieces):
        place, length = i * step, piece.shape[2]
        result[:, :, place : place + length] += weight[:length] * piece
        weights[place : place + length] += weight[:length]
    return np.divide(result, weights, out=np.zeros_like(result), where=weights > 0)
