"""DFT and STFT: discrete Fourier transforms of signals or windows, computed in the input's precision (at least f32)."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Tolerance, Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.output_limit import allowed
from ..rules.shape_rules import model_error

NEAR = Tolerance(1e-4, 1e-4)


def _complex(x: np.ndarray, what: str) -> np.ndarray:
    """Without the last dim, which holds a real number, or its real and imaginary parts."""
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise model_error(f"{what} of no numbers", "E-OP-SHAPE", expected="(..., 1) or (..., 2)", found=x.shape)
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _parts(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.stack([x.real, x.imag], axis=-1).astype(dtype)


def infer_dft(node: Inference) -> None:
    """The axis becomes as long as the transform, or half of it; the last dim holds both parts of a complex number."""
    shape, inverse, onesided = node.shape(0), node.attributes["inverse"], node.attributes["onesided"]
    if shape is None:
        node.set(0, node.dtype(0), None)
        return
    axes = node.data(2) if node.value(2) is not None else (-2,)
    if not axes or not isinstance(axes[0], int):
        kept = shape[:-1] if node.value(1) is None and not onesided else (None,) * (len(shape) - 1)
        node.set(0, node.dtype(0), (*kept, 1 if inverse and onesided else 2))
        return
    axis = axes[0] % len(shape) if -len(shape) <= axes[0] < len(shape) else len(shape)
    if axis >= len(shape) - 1:
        node.fail(f"axis {axes[0]} is none of the signal's in {counted(len(shape), 'dim')}")
    length: Dim = shape[axis]
    asked = node.data(1) if node.value(1) is not None else None
    if node.value(1) is not None:
        length = asked[0] if asked else None
    elif inverse and onesided:
        length = 2 * (length - 1) if isinstance(length, int) else None
    if onesided and not inverse:
        length = length // 2 + 1 if isinstance(length, int) else None
    node.set(0, node.dtype(0), (*shape[:axis], length, *shape[axis + 1 : -1], 1 if inverse and onesided else 2))


@op(
    "DFT",
    since=20,
    types="float index i64",
    traits=(Trait.KEEPS_F32,),
    infer=infer_dft,
    tolerance=NEAR,
    examples=[
        case("f32[2,5,1]"),
        case("f32[2,5,2]", inverse=1),
        case("f32[2,5,3,1]", None, np.array(1), onesided=1),
        case("f32[2,5,1]", np.array(8)),
        case("f32[2,4,2]", None, np.array(-2), inverse=1, onesided=1),
        case("f32[2,5,2]", np.array(3), np.array(0)),
        case("f32[0,5,1]"),
    ],
)
@quiet
def dft(
    x: np.ndarray,
    dft_length: np.ndarray | None = None,
    axis: np.ndarray | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> np.ndarray:
    """Transform of (..., 1) real or (..., 2) complex numbers along `axis`; the inverse is divided by its length."""
    signal = _complex(x, "DFT")
    along = -2 if axis is None else int(axis.reshape(()))
    if not (-x.ndim <= along < -1 or 0 <= along < x.ndim - 1):
        raise model_error("DFT along no axis of its signal", "E-OP-AXIS", expected=f"below {x.ndim - 1}", found=along)
    along %= x.ndim
    count = signal.shape[along]
    length = (
        int(dft_length.reshape(())) if dft_length is not None else 2 * (count - 1) if inverse and onesided else count
    )
    if length < 1:
        raise model_error("DFT of no elements", expected="a length of 1", found=length)
    allowed((*signal.shape[:along], length, *signal.shape[along + 1 :]), 16, "DFT")
    if not inverse:
        transform = np.fft.rfft if onesided and not np.iscomplexobj(signal) else np.fft.fft
        found = transform(signal, n=length, axis=along)
        return _parts(found[(slice(None),) * along + (slice(0, length // 2 + 1),)] if onesided else found, x.dtype)
    if onesided:
        return np.fft.irfft(signal, n=length, axis=along)[..., None].astype(x.dtype)
    return _parts(np.fft.ifft(signal, n=length, axis=along), x.dtype)


@upgrade(dft, below=20)
def axis_was_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 20 the axis was an attribute, 1 where it was not given."""
    axis = node.attributes.pop("axis", 1)
    node.inputs = [*node.inputs, *[None] * (2 - len(node.inputs)), build.constant(axis)]


def infer_stft(node: Inference) -> None:
    """(batch, frames, bins, 2)."""
    shape, step, window, length = node.shape(0), node.data(1), node.shape(2), node.data(3)
    if shape is not None and len(shape) != 3:
        node.fail(f"its signal must have 3 dims, it has {len(shape)}")
    batch, samples, _ = shape or (None, None, None)
    size: Dim = samples
    if node.value(3) is not None:
        size = length[0] if length else None
    elif node.value(2) is not None:
        size = window[0] if window else None
    frames: Dim = None
    if isinstance(samples, int) and isinstance(size, int) and step and isinstance(step[0], int) and step[0] > 0:
        frames = max(0, (samples - size) // step[0] + 1)
    bins = (
        size // 2 + 1
        if isinstance(size, int) and node.attributes["onesided"]
        else None
        if node.attributes["onesided"]
        else size
    )
    node.set(0, node.dtype(0), (batch, frames, bins, 2))


WINDOW = np.array([0.1, 0.5, 1, 0.5, 0.2, 0.3], np.float32)


@op(
    "STFT",
    since=17,
    types="T=float U=index T U",
    traits=(Trait.KEEPS_F32,),
    infer=infer_stft,
    tolerance=NEAR,
    examples=[
        case("f32[2,20,1]", np.array(3), WINDOW),
        case("f32[2,20,1]", np.array(4), None, np.array(8)),
        case("f32[1,20,2]", np.array(3), WINDOW, onesided=0),
        case("f32[2,20,1]", np.array(3), WINDOW, np.array(6), onesided=0),
        case("f32[0,20,1]", np.array(3), WINDOW),
    ],
)
@quiet
def stft(
    signal: np.ndarray,
    frame_step: np.ndarray,
    window: np.ndarray | None = None,
    frame_length: np.ndarray | None = None,
    *,
    onesided: int = 1,
) -> np.ndarray:
    """(batch, frames, bins, 2) of (batch, samples, 1 or 2): the transform of each frame times the window."""
    values = _complex(signal, "STFT")
    step = int(frame_step.reshape(()))
    length = (
        int(frame_length.reshape(()))
        if frame_length is not None
        else window.size
        if window is not None
        else values.shape[-1]
    )
    if (
        values.ndim != 2
        or step < 1
        or length < 1
        or length > values.shape[1]
        or (window is not None and window.size != length)
    ):
        why = f"STFT of frames of {length} every {step} does not fit its signal"
        hint = "Compare frame_step, frame_length and window with the signal"
        raise UsageError("E-OP-SHAPE", None, why, expected="(batch, samples, 1 or 2)", found=signal.shape, hint=hint)
    frames = np.lib.stride_tricks.sliding_window_view(values, length, axis=1)[:, ::step]
    allowed(frames.shape, 32, "STFT")
    weighted = frames if window is None else frames * window.reshape(-1).astype(np.float64)
    if onesided and not np.iscomplexobj(weighted):
        return _parts(np.fft.rfft(weighted, axis=-1), signal.dtype)
    found = np.fft.fft(weighted, axis=-1)
    return _parts(found[..., : length // 2 + 1] if onesided else found, signal.dtype)
