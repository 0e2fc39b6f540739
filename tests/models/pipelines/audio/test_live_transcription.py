"""Sounds that arrive as slowly as they are heard: windows do not wait, and segments come before their window ends."""

import itertools

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.models.pipelines.audio.transcription import sample_windows
from candle_convert.models.pipelines.audio.transcription.decoding import DecodedWindow, WindowDecoder
from candle_convert.models.pipelines.audio.transcription.options import TranscriptionOptions
from candle_convert.models.pipelines.audio.transcription.sample_windows import SampleWindows
from candle_convert.models.pipelines.audio.transcription.transcriber import Transcriber
from candle_convert.models.preprocess.audio.log_mel import LogMel
from candle_convert.tests.builders.speech_checkpoints import FIRST, WHISPERS, tones, whisper

BLOCK = 1_600
"""Samples of a tenth of a second."""


class Stream:
    """Blocks of a tenth of a second, and a clock by which each takes so many seconds."""

    def __init__(self, samples, seconds):
        self.blocks, self.seconds, self.count = np.split(samples, range(BLOCK, len(samples), BLOCK)), seconds, 0

    def __iter__(self):
        for block in self.blocks:
            self.count += 1
            yield block

    def clock(self):
        return self.count * self.seconds


def test_windows_that_do_not_wait(monkeypatch):
    monkeypatch.setattr(sample_windows, "LIVE_SECONDS", 0.5)
    mel, samples = LogMel(seconds=2), tones(3)
    slow, fast = Stream(samples, 0.1), Stream(samples, 0.001)
    windows = SampleWindows(slow, mel, 1.0, slow.clock)
    for count in (5, 10, 15, 20):
        features, frames = windows.at(0)
        assert (slow.count, frames, windows.complete(0)) == (count, 10 * count, count == 20)
    whole = SampleWindows(fast, mel, 1.0, fast.clock)
    np.testing.assert_allclose(features[:, :190], whole.at(0)[0][:, :190], atol=1e-5)
    assert (fast.count, whole.complete(0)) == (21, True)
    assert windows.at(250)[1] == 50
    assert (windows.at(250)[1], windows.complete(250)) == (50, True)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    whisper(WHISPERS[0], 3, folder)
    return cc.models.load(folder, threads=1)


@pytest.mark.parametrize("seconds", [0.1, 0.001])
def test_segments_come_early(model, monkeypatch, seconds):
    """A model that says a word for every half second that it hears."""
    monkeypatch.setattr(sample_windows, "LIVE_SECONDS", 0.5)
    stream = Stream(tones(4), seconds)
    windows = SampleWindows(stream, model.log_mel, 1.0, stream.clock)
    heard = []
    at = windows.at
    monkeypatch.setattr(windows, "at", lambda first: heard.append(at(first)) or heard[-1])

    def decode(self, source, previous):
        words = heard[-1][1] // 50
        spans = ((FIRST + 25 * word, ord("a"), FIRST + 25 * (word + 1)) for word in range(words))
        return DecodedWindow(list(itertools.chain(*spans)), "a" * words, -0.1, 0.0, 0.0, 1.0)

    monkeypatch.setattr(WindowDecoder, "decode", decode)
    arrived = []
    found = []
    for segment in Transcriber(model, windows, TranscriptionOptions(language="en"), lambda done: None).segments():
        found.append((segment.start, segment.end))
        arrived.append(stream.count / 10)
    assert found == [(start / 2, (start + 1) / 2) for start in range(8)]
    if seconds == 0.1:
        assert all(count <= end + 1.6 for count, (_, end) in zip(arrived, found, strict=True))
    else:
        assert arrived[0] >= 2
