"""Short-time Fourier transforms: spectra of overlapping frames of signals, and signals of such spectra."""

from __future__ import annotations

import warnings

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.ir.domain import CANDLE
from ..core.expression import apply, op_named
from ..core.registry import operation
from ..core.tensor import Tensor
from ..core.trace import TRACE
from ..operations.creation import ones
from ..operations.operands import integers
from .fourier import fft, ifft, irfft, padded, rfft
from .numbers import is_complex, part, view_as_real

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""ONNX's names of PyTorch's modes of padding."""
MIN_ENVELOPE = 1e-11
"""The sum of squares of windows below which a sample is not known."""


@operation()
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Spectra of frames of a signal (samples) or of several (batch, samples): ([batch,] frequencies, frames).

    Args:
        n_fft: samples of a transform; hop_length: samples from frame to frame, by default a quarter of them.
        win_length: samples of the window, which stands in the middle of a frame, by default all.
        window: (win_length), ones by default.
        center: whether frames are around their samples; the signal is padded by `pad_mode` at both ends then.
        normalized: whether spectra are divided by the root of `n_fft`.
        onesided: whether the frequencies below 0 are left out, which are those of a real signal again; by default if
            signal and window are real.
        return_complex: True for complex elements, False for real and imaginary parts in a last dim of 2.
        align_to_window: of a signal that is not centered, whether only the window has to lie inside it.

    Raises UsageError for real signals without `return_complex`, and for signals shorter than a frame.
    """
    if return_complex is None and not is_complex(input) and (window is None or not is_complex(window)):
        why = "stft of a real signal needs return_complex"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Pass return_complex=True")
    if center and align_to_window is not None:
        why = "align_to_window is only of signals that are not centered"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Pass center=False")
    if input.ndim not in (1, 2):
        why = f"stft of a tensor of shape {list(input.shape)}"
        raise UsageError("E-TENSOR-SHAPE", None, why, expected="(samples) or (batch, samples)")
    hop, length, window = _settings("stft", n_fft, hop_length, win_length, window, input)
    signal = input.reshape(1, -1) if input.ndim == 1 else input
    if center:
        signal = _extended(signal, n_fft // 2, pad_mode)
    elif align_to_window and length < n_fft:
        before = (n_fft - length) // 2
        signal = padded(signal, [0, before, 0, n_fft - length - before])
    if not 0 < n_fft <= signal.shape[1]:
        why = f"stft: frames of {n_fft} samples of a signal of {signal.shape[1]}"
        raise UsageError("E-TENSOR-VALUE", None, why, expected=f"n_fft from 1 to {signal.shape[1]}")
    frames = _frames(signal, n_fft, hop)
    if window is not None:
        frames = frames * window
    half = (not is_complex(frames)) if onesided is None else onesided
    norm = "ortho" if normalized else None
    if half and is_complex(frames):
        why = "onesided spectra are those of real signals and windows"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Pass onesided=False")
    found = (rfft if half else fft)(frames, norm=norm).transpose(1, 2)
    found = found[0] if input.ndim == 1 else found
    return view_as_real(found) if return_complex is False else found


@operation()
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal (samples) or signals (batch, samples) of spectra ([batch,] frequencies, frames): `stft` undone.

    Frames are transformed, multiplied with the window and added, and divided by the sum of squared windows.

    Args:
        length: samples of the result, which is cut or ends in zeros; other arguments are those of `stft`.
        return_complex: whether the signal is complex; the spectra have all frequencies then.

    Raises UsageError for real spectra, for as many frequencies as `n_fft` does not have, and where windows leave
    samples out.
    """
    if not is_complex(input):
        why = f"istft of a tensor of {input.dtype}"
        raise UsageError("E-TENSOR-DTYPE", None, why, expected="complex elements", hint="Use view_as_complex()")
    if input.ndim not in (2, 3) or not input.numel():
        why = f"istft of a tensor of shape {list(input.shape)}"
        raise UsageError("E-TENSOR-SHAPE", None, why, expected="([batch,] frequencies, frames)")
    if length is not None and length < 1:
        raise UsageError("E-TENSOR-VALUE", None, f"istft of length {length}", expected="at least 1 sample")
    hop, _, window = _settings("istft", n_fft, hop_length, win_length, window, part(input, "Real"))
    spectra = (input if input.ndim == 3 else input.reshape(1, *input.shape)).transpose(1, 2)
    bins, half = spectra.shape[2], n_fft // 2 + 1
    is_half = bins != n_fft if onesided is None else onesided
    if bins != (half if is_half else n_fft):
        why = f"istft of {counted(bins, 'frequency', 'frequencies')}"
        raise UsageError("E-TENSOR-SHAPE", None, why, expected=str(half if is_half else n_fft))
    if return_complex and is_half:
        raise UsageError(
            "E-TENSOR-VALUE",
            None,
            "a complex signal has spectra of all frequencies",
            hint="Pass onesided=False to stft",
        )
    norm = "ortho" if normalized else None
    if return_complex:
        frames = ifft(spectra, norm=norm)
    else:
        frames = irfft(spectra if is_half else spectra[..., :half], n_fft, norm=norm)
    window = ones(n_fft, dtype=part(input, "Real").dtype) if window is None else window
    count = frames.shape[1]
    whole = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - start
    signal = _added(frames * window, hop)[:, start:end]
    weights = (window * window).reshape(1, 1, -1).broadcast_to((1, count, n_fft))
    envelope = _added(weights, hop)[:, start:end]
    if TRACE.changes is None and not envelope.detach().abs().amin().item() > MIN_ENVELOPE:
        why = "windows leave samples out, of which nothing is known"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Use a smaller hop_length, or center=True")
    found = signal / envelope
    if end > whole:
        warnings.warn(f"the frames end before {length} samples: zeros follow", stacklevel=2)
        found = padded(found, [0, 0, 0, end - whole])
    return found[0] if input.ndim == 2 else found


def _settings(
    what: str, n_fft: int, hop_length: int | None, win_length: int | None, window: Tensor | None, signal: Tensor
) -> tuple[int, int, Tensor | None]:
    """Samples between frames, samples of the window, and the window in the middle of `n_fft` samples."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if hop < 1:
        raise UsageError("E-TENSOR-VALUE", None, f"{what}: a hop_length of {hop}", expected="at least 1")
    if not 0 < length <= n_fft:
        raise UsageError("E-TENSOR-VALUE", None, f"{what}: a win_length of {length}", expected=f"1 to n_fft = {n_fft}")
    if window is not None and window.shape != (length,):
        why = f"{what}: a window of shape {list(window.shape)}"
        raise UsageError("E-TENSOR-SHAPE", None, why, expected=f"[{length}], as win_length says")
    if length < n_fft:
        before = (n_fft - length) // 2
        window = ones(length, dtype=signal.dtype) if window is None else window
        window = padded(window, [before, n_fft - length - before])
    return hop, length, window


def _extended(signal: Tensor, count: int, mode: str) -> Tensor:
    """Signals with so many samples more at both ends."""
    if mode not in MODES:
        raise UsageError("E-TENSOR-VALUE", None, f"{mode!r} is not a mode of padding", expected=", ".join(MODES))
    most = {"reflect": signal.shape[1] - 1, "circular": signal.shape[1]}.get(mode)
    if most is not None and count > most:
        why = f"stft: {count} samples in mode {mode!r} at both ends of a signal of {signal.shape[1]}"
        raise UsageError("E-TENSOR-SHAPE", None, why, expected=f"at most {most}", hint="Use a smaller n_fft")
    widths = integers([0, count, 0, count])
    return Tensor(apply(op_named("Pad"), [signal.expression, widths], {"mode": MODES[mode]}))


def _frames(signal: Tensor, length: int, hop: int) -> Tensor:
    """(batch, frames, length) of (batch, samples)."""
    return Tensor(apply(op_named("Frames", CANDLE), [signal.expression], {"length": length, "hop": hop}))


def _added(frames: Tensor, hop: int) -> Tensor:
    """(batch, samples) of (batch, frames, length): overlapping samples are added."""
    samples = frames.shape[2] + hop * (frames.shape[1] - 1)
    return Tensor(apply(op_named("OverlapAdd", CANDLE), [frames.expression], {"hop": hop, "samples": samples}))
