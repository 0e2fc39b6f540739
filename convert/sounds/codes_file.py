"""Codes of audio as a file: an .npz archive that numpy.load reads.

``codes`` is u8, u16 or u32 [quantizers, frames], or [chunks, quantizers, frames] of EnCodec; a codec whose quantizers
have codes of different lengths has ``codes.0``, ``codes.1`` ... [frames]. ``scales`` f32 [chunks], ``length`` (samples)
and ``padding`` (frames) are as of `AudioCodes`; ``rate``, ``channels``, ``codebook_size`` and ``hop`` (samples of a
frame) tell which codec the codes are of.
"""

from __future__ import annotations

from typing import IO, Any

import numpy as np

from ...models.pipelines.audio.codec.audio_codes import AudioCodes
from ...models.pipelines.audio.codec.codec_model import CodecModel
from ...runtime.base.errors import FormatError, UsageError
from ...runtime.ir.graph import Graph
from ..open.open_model import open_model

CODES, SCALES, LENGTH, PADDING = "codes", "scales", "length", "padding"
SUFFIX = ".npz"
FACTS = ("rate", "channels", "codebook_size", "hop")
"""Hyper-parameters by which the codec is known."""
MOST = 1 << 48
"""Samples or frames, at most."""


def write_codes(file: IO[bytes], codes: AudioCodes, model: CodecModel) -> None:
    """Write the codes of one sound."""
    size = model.config.codebook_size - 1
    levels = codes.codes if isinstance(codes.codes, list) else [codes.codes]
    small = [_alone(level, model).astype(np.min_scalar_type(size)) for level in levels]
    names = [f"{CODES}.{i}" for i in range(len(small))] if model.multiscale else [CODES]
    arrays: dict[str, Any] = dict(zip(names, small, strict=True))
    if codes.scales is not None:
        arrays[SCALES] = codes.scales[:, 0, 0]
    arrays |= {LENGTH: codes.length, PADDING: codes.padding, **{name: model.config.values[name] for name in FACTS}}
    np.savez(file, **arrays)


def _alone(codes: np.ndarray, model: CodecModel) -> np.ndarray:
    """Codes without the dimension of the batch."""
    return codes[:, 0] if model.chunked else codes[0]


def read_codes(path: str, model: CodecModel) -> AudioCodes:
    """The codes that a file has, for this model.

    Raises FormatError for damaged and other files, UsageError for codes of another codec.
    """
    graph = open_model(path, format="npz")
    other = {name: int(_scalar(graph, path, name)) for name in FACTS}
    for name, found in other.items():
        if found != model.config.values[name]:
            why = f"the codes are of another codec: {name} differs"
            raise UsageError("E-CODEC-MODEL", path, why, expected=model.config.values[name], found=found)
    length, padding = _scalar(graph, path, LENGTH), _scalar(graph, path, PADDING)
    if not model.multiscale:
        codes = _array(graph, path, CODES)
        if codes.ndim != 2 + model.chunked:
            expected = f"[{'chunks, ' if model.chunked else ''}quantizers, frames]"
            raise FormatError("E-CODES-SHAPE", path, "codes have another shape", expected=expected, found=codes.shape)
        scales = _array(graph, path, SCALES).reshape(-1, 1, 1) if SCALES in graph.weights else None
        return AudioCodes(codes[:, None] if model.chunked else codes[None], scales, length, padding)
    names = [f"{CODES}.{i}" for i in range(model.config.quantizers)]
    return AudioCodes([_array(graph, path, name)[None] for name in names], None, length, padding)


def _array(graph: Graph, path: str, name: str) -> np.ndarray:
    if name not in graph.weights:
        hint = "Use a file that candle-convert codec encode wrote"
        raise FormatError("E-CODES-MISSING", path, f"no codes of audio: the array {name} is missing", hint=hint)
    return np.asarray(graph.weights[name].numpy())


def _scalar(graph: Graph, path: str, name: str) -> int:
    found = _array(graph, path, name)
    if found.size != 1 or found.dtype.kind not in "iu" or not 0 <= int(found.reshape(())) < MOST:
        why = f"{name} is not a number of samples, frames or codes"
        raise FormatError("E-CODES-NUMBER", path, why, found=str(found.dtype))
    return int(found.reshape(()))
