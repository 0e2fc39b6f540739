"""``transcribe`` on damaged and unusual sounds: one clear line, or a sensible result."""

import json
import shutil
import struct

import numpy as np
import pytest
import soundfile
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.speech_checkpoints import WHISPERS, tones, whisper

RATE = 16_000


def wave(seconds, rate=RATE, data=b""):
    """A WAV file whose header tells a length, with other data."""
    count = min(2 * rate * seconds, 0xFFFFFFFF - 36)
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate & 0xFFFFFFFF, 2, 16)
    return b"RIFF" + struct.pack("<I", count + 36) + b"WAVEfmt " + form + b"data" + struct.pack("<I", count) + data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("sounds")
    (found / "model").mkdir()
    whisper(WHISPERS[0], 3, found / "model")
    sound = tones(1)
    spoiled = sound.copy()
    spoiled[5_000] = np.nan
    soundfile.write(found / "none.wav", sound[:0], RATE)
    soundfile.write(found / "nan.wav", spoiled, RATE, subtype="FLOAT")
    soundfile.write(found / "silent.wav", np.zeros(5 * RATE), RATE)
    soundfile.write(found / "eight.wav", np.stack([sound] * 8, 1), RATE)
    soundfile.write(found / "slow.wav", sound, 8_000)
    soundfile.write(found / "whole.flac", np.random.default_rng(0).standard_normal(RATE) / 9, RATE)
    (found / "cut.flac").write_bytes((found / "whole.flac").read_bytes()[:9_000])
    (found / "empty.wav").write_bytes(b"")
    (found / "day.wav").write_bytes(wave(24 * 3600, data=bytes(980)))
    (found / "rate.wav").write_bytes(wave(1, rate=3, data=bytes(60)))
    (found / "picture.wav").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(500))
    return found


def ran(folder, name, capsys, *options):
    words = ["transcribe", folder / "model", folder / name, "--temperature", "0", "--beams", "1", "--language", "en"]
    code = run([*map(str, (*words, *options))])
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("empty.wav", "the file is empty"),
        ("none.wav", "no samples"),
        ("nan.wav", "not finite"),
        ("cut.flac", "cannot be decoded"),
        ("rate.wav", "3 samples a second"),
        ("picture.wav", "not audio"),
        ("absent.wav", "no such file"),
    ],
)
def test_refused_in_a_line(folder, name, why, capsys):
    code, out, err = ran(folder, name, capsys)
    assert code in (3, 7)
    assert out == ""
    assert why in err
    assert len(err.strip().splitlines()) == 1


STATED = {
    "hop_length": 161,
    "feature_size": 79,
    "sampling_rate": 8_000,
    "chunk_length": 3_600,
    "dither": 0.5,
    "n_fft": 1e9,
}


@pytest.mark.parametrize("name", STATED)
def test_settings_that_do_not_fit_the_model(name, folder, tmp_path, capsys):
    """transformers refuses features of another size than the encoder's, or adds noise: one line names the file."""
    shutil.copytree(folder / "model", tmp_path / "model")
    file = tmp_path / "model" / "preprocessor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: STATED[name]}))
    assert run(["transcribe", str(tmp_path / "model"), str(folder / "silent.wav"), "--language", "en"]) == 3
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "E-PREPROCESSOR-KEY" in line
    assert "Correct it in preprocessor_config.json" in line


@pytest.mark.parametrize(("name", "seconds"), [("silent.wav", 5), ("day.wav", 490 / RATE)])
def test_silence_has_no_text(folder, name, seconds, capsys):
    code, out, _ = ran(folder, name, capsys, "--json")
    (found,) = json.loads(out)["results"]
    assert code == 0
    assert (found["text"], found["segments"]) == ("", [])
    assert found["duration"] == pytest.approx(seconds)


@pytest.mark.parametrize(("name", "seconds"), [("eight.wav", 1), ("slow.wav", 2)])
def test_channels_and_rates(folder, name, seconds, capsys):
    code, out, _ = ran(folder, name, capsys, "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["duration"] == pytest.approx(seconds, abs=1e-3)


def test_a_short_file_is_said(folder, capsys):
    """A header of a day, and 490 samples: on standard error, and among the warnings of JSON."""
    code, _, err = ran(folder, "day.wav", capsys)
    assert code == 0
    assert err.count("W-SOUND-SHORT") == 1
    assert "86,400.0 s, 0.0 s are there" in err
    code, out, _ = ran(folder, "day.wav", capsys, "--json")
    assert [warning["code"] for warning in json.loads(out)["warnings"]] == ["W-SOUND-SHORT"]
    code, out, err = ran(folder, "silent.wav", capsys, "--json")
    assert (json.loads(out)["warnings"], "W-" in err) == ([], False)


def test_damaged_ones_among_several(folder, capsys):
    code, out, err = ran(folder, "silent.wav", capsys, str(folder / "picture.wav"), str(folder / "day.wav"))
    assert code == 3
    assert "picture.wav" in err
    assert [line.rpartition("/")[2] for line in out.splitlines()] == ["silent.wav:", "picture.wav:", "day.wav:"]
