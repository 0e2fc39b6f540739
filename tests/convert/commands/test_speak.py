"""``speak``: the sound that Python makes, in a file; refusals in one line."""

import candle_convert as cc
import numpy as np
import pytest
import soundfile
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.musicgen import music_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return music_folder(tmp_path_factory.mktemp("music"))


def test_sound_of_a_seed(folder, tmp_path, capsys):
    words = ["speak", str(folder), "-p", "a calm piano", "--seed", "3", "--max-seconds", "0.05", "--temperature", "5"]
    assert run([*words, "-o", str(tmp_path / "a.wav")]) == 0
    assert "a.wav" in capsys.readouterr().out
    found, rate = soundfile.read(tmp_path / "a.wav", dtype="float32")
    expected, stated = cc.models.load(folder).speak("a calm piano", seed=3, max_seconds=0.05, temperature=5.0)
    assert rate == stated
    assert np.abs(found - expected).max() <= 2**-15
    other, _ = cc.models.load(folder).speak("a calm piano", seed=4, max_seconds=0.05, temperature=5.0)
    assert not np.array_equal(other, expected)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--describe", "slow"], "does not read description"),
        (["-p", "  "], "the text is empty"),
        (["--max-seconds", "1e9"], "max_seconds is out of range"),
        (["-o", "a.txt"], "audio is not written to such files"),
    ],
)
def test_refusals(options, why, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["speak", str(folder), "-p", "a piano", "-o", "a.wav", *options]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
    assert not any(tmp_path.iterdir())
