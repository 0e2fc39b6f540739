"""Speech alone: samples, times of the whole sound by faster-whisper's definition, and texts with gaps left out."""

import bisect
import io
import json
from string import ascii_letters

import candle_convert as cc
import numpy as np
import pytest
import soundfile
from candle_convert.convert.cli.main import run
from candle_convert.models.preprocess.audio.speech_only import SpeechOnly
from candle_convert.tests.builders.audio_networks import WAV2VEC2, network
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.speech_checkpoints import MOONSHINE, WHISPERS, bytes_tokenizer, tones, whisper
from candle_convert.tests.oracles.transformers import made

SEGMENTS = [(100, 250), (250, 400), (1_000, 1_050), (2_000, 3_000)]


def original_time(segments, rate, time, is_end):
    """``SpeechTimestampsMap.get_original_time`` of faster-whisper 1.2, line by line."""
    ends, before, previous, silent = [], [], 0, 0
    for start, end in segments:
        silent += start - previous
        previous = end
        ends.append(end - silent)
        before.append(silent / rate)
    sample = int(time * rate)
    at = ends.index(sample) if sample in ends and is_end else min(bisect.bisect(ends, sample), len(ends) - 1)
    return before[at] + time


@pytest.mark.parametrize("size", [1, 33, 400, 5_000])
def test_samples(size):
    samples = np.arange(3_500, dtype=np.float32)
    blocks = [samples[start : start + size] for start in range(0, len(samples), size)]
    found = list(SpeechOnly(SEGMENTS, 100).blocks(blocks))
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate([samples[a:b] for a, b in SEGMENTS]))
    assert not list(SpeechOnly([], 100).blocks(blocks))


def test_times():
    speech = SpeechOnly(SEGMENTS, 100)
    for sample in range(1_400):
        for end in (False, True):
            found = speech.original(sample / 100, end=end)
            assert found == pytest.approx(original_time(SEGMENTS, 100, (sample + 0.5) / 100, end) - 0.005)
    assert speech.original(3.5, near=3.4) == pytest.approx(10.5)


class Finder:
    """Takes given seconds for speech."""

    def __init__(self, *rows):
        self.rows = rows

    def predict(self, inputs, **options):
        assert options == {"shortest": 0.0, "silence": 2.0, "padding": 0.4}
        return [{"start": start, "end": end} for start, end in self.rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("speech")
    whisper(WHISPERS[0], 3, found)
    return found


@pytest.mark.parametrize("words", [False, True])
def test_gaps_are_not_heard(folder, words):
    model = cc.models.load(folder, threads=1)
    options = {"language": "en", "temperature": 0.0, "beams": 1, "no_speech_threshold": None, "word_timestamps": words}
    gaps = [np.full(16_000 * seconds, 1e-3, np.float32) for seconds in (3, 5)]
    parts = [tones(1.5, 1), tones(2, 2)]
    alone = model.transcribe(np.concatenate(parts), **options)
    finder = Finder((3.0, 4.5), (9.5, 11.5))
    found = model.transcribe(np.concatenate([gaps[0], parts[0], gaps[1], parts[1]]), vad=finder, **options)
    assert found.text == alone.text
    assert found.duration == pytest.approx(11.5)
    for here, there in zip(found.segments, alone.segments, strict=True):
        assert here.start == pytest.approx(there.start + (3 if there.start < 1.5 else 8), abs=0.02)
        assert here.end >= here.start
    assert model.transcribe(parts[0], vad=Finder(), **options).segments == []


def spoken_by_letters(folder):
    saved(image_model("Wav2Vec2ForCTC", **WAV2VEC2), folder)
    letters = {text: place for place, text in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *ascii_letters[:27]])}
    (folder / "vocab.json").write_text(json.dumps(letters))


def spoken_by_samples(folder):
    made(MOONSHINE, 3, folder)
    bytes_tokenizer(["<s>", "</s>"]).save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("write", [spoken_by_letters, spoken_by_samples])
def test_gaps_are_not_heard_by_other_models(write, tmp_path):
    write(tmp_path)
    model, parts, gap = cc.models.load(tmp_path, threads=1), [tones(1.5, 1), tones(2, 2)], np.zeros(48_000, np.float32)
    alone = model.transcribe(np.concatenate(parts))
    found = model.transcribe(np.concatenate([gap, *parts]), vad=Finder((3.0, 6.5)))
    assert found.text == alone.text != ""
    assert found.duration == pytest.approx(6.5)
    for here, there in zip(found.segments, alone.segments, strict=True):
        assert (here.start, here.end) == pytest.approx((there.start + 3, there.end + 3), abs=0.01)
    with pytest.raises(cc.Error, match="read once"):
        model.transcribe(io.BytesIO(), vad=Finder())


def test_command(folder, tmp_path, capsys):
    import safetensors.torch

    model, _ = network("silero_vad")
    safetensors.torch.save_file(model.state_dict(), tmp_path / "vad.safetensors")
    soundfile.write(tmp_path / "a.wav", tones(1), 16_000)
    words = ["transcribe", str(folder), str(tmp_path / "a.wav"), "--language", "en", "--temperature", "0", "--json"]
    assert run([*words, "--vad", str(tmp_path / "vad.safetensors")]) == 0
    capsys.readouterr()
    assert run([*words, "--vad", str(folder)]) != 0
    assert "E-MODEL-VERB" in capsys.readouterr().out
