"""Windows of samples that arrive in blocks, as features; only the samples of one window are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ....preprocess.audio.log_mel import LogMel

LIVE_SECONDS, LIVE_SHARE = 3.0, 0.5
"""Seconds of sound that arrive before a window is read again, and the share of them that it takes at least where the
sound arrives as it is heard."""


class SampleWindows:
    """Features of windows.

    Args:
        blocks: samples f32 [count] each, at the rate of `log_mel`.
        peak: energy of the loudest element of all, where it is known; else that of what was heard so far.
        clock: seconds now, for sounds that may arrive as slowly as they are heard: windows do not wait for all of their
            samples then. None for others.

    Attributes:
        frames: of all samples that have arrived.
        ended: whether all have.
    """

    def __init__(
        self,
        blocks: Iterable[np.ndarray],
        log_mel: LogMel,
        peak: float = -np.inf,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._blocks: Iterator[np.ndarray] = iter(blocks)
        self._mel = log_mel
        self._peak = peak
        self._clock = clock
        self._held = np.zeros(0, np.float32)
        self._dropped = 0
        self.ended = False

    @property
    def frames(self) -> int:
        return (self._dropped + len(self._held)) // self._mel.hop

    def complete(self, first: int) -> bool:
        """Whether all samples of the window from frame `first` on have arrived, or no further ones will."""
        return self.ended or self.frames - first >= self._mel.frames

    @property
    def seconds(self) -> float:
        """Seconds of all samples that have arrived."""
        return (self._dropped + len(self._held)) / self._mel.rate

    def at(self, first: int) -> tuple[np.ndarray, int] | None:
        """Features f32 [mels, frames] of a window from frame `first` on, and how many of the frames are of samples; the
        others are 0, as those of faster-whisper. None after the end. `first` never decreases."""
        mel = self._mel
        half = mel.fft // 2
        start, stop = first * mel.hop - half, first * mel.hop + mel.samples + half
        self._read(stop)
        while self.frames <= first and not self.ended:
            self._read(stop)
        self._drop(start)
        known = self.frames - first
        if known <= 0:
            return None
        inside = self._held[max(start - self._dropped, 0) : stop - self._dropped]
        window = np.zeros(mel.samples + 2 * half, np.float32)
        before = max(self._dropped - start, 0)
        window[before : before + len(inside)] = inside
        window[:before] = window[2 * before : before : -1]
        energies = mel.energies(window)
        self._peak = max(self._peak, float(energies.max()))
        features = mel.scaled(energies, self._peak)
        features[:, known:] = 0
        return features, min(known, mel.frames)

    def _read(self, stop: int) -> None:
        """Wait for the samples before `stop`, or for some of them where they arrive slowly."""
        arrived = [self._held]
        first = count = self._dropped + len(self._held)
        clock = self._clock or (lambda: 0.0)
        began = clock()
        while count < stop and not self.ended:
            block = next(self._blocks, None)
            self.ended = block is None
            if block is not None:
                arrived.append(np.asarray(block, np.float32))
                count += len(block)
            heard = (count - first) / self._mel.rate
            if heard >= LIVE_SECONDS and clock() - began >= LIVE_SHARE * heard:
                break
        self._held = np.concatenate(arrived) if len(arrived) > 1 else self._held

    def _drop(self, start: int) -> None:
        """Forget the samples before `start`."""
        count = min(max(start - self._dropped, 0), len(self._held))
        self._held = self._held[count:]
        self._dropped += count


def peak_energy(blocks: Iterable[np.ndarray], log_mel: LogMel) -> float:
    """Energy of the loudest element of a spectrogram, -inf without samples."""
    held, highest = np.zeros(log_mel.fft // 2, np.float32), -np.inf
    for block in blocks:
        held = np.concatenate([held, np.asarray(block, np.float32)])
        frames = (len(held) - log_mel.fft) // log_mel.hop
        if frames > 0:
            highest = max(highest, float(log_mel.energies(held[: frames * log_mel.hop + log_mel.fft]).max()))
            held = held[frames * log_mel.hop :]
    return highest
