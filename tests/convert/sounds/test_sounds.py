"""Sounds of a command line, and files that are written; libsndfile reads them back."""

import io

import numpy as np
import pytest
import soundfile
from candle_convert.convert.sounds.sound_inputs import sounds_of
from candle_convert.convert.sounds.write_sound import write_sound
from candle_convert.runtime.base.errors import FileAccessError, UnsafeFileError, UsageError

RATE = 16_000
TONE = (0.5 * np.sin(np.arange(RATE) * (2 * np.pi * 440 / RATE))).astype(np.float32)


def test_files_folders_and_patterns(tmp_path):
    for name in ("b.wav", "a.FLAC", "note.txt", "deep/c.mp3"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    inside = [str(tmp_path / name) for name in ("a.FLAC", "b.wav")]
    assert sounds_of([str(tmp_path)]) == inside
    assert sounds_of(["-", str(tmp_path / "note.txt")]) == ["-", str(tmp_path / "note.txt")]
    assert sounds_of([str(tmp_path / "**" / "*.mp3")]) == [str(tmp_path / "deep" / "c.mp3")]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no sounds"):
        sounds_of([str(tmp_path / "empty")])
    with pytest.raises(FileAccessError):
        sounds_of([str(tmp_path / "*.ogg")])


@pytest.mark.parametrize(
    ("name", "dtype", "error"),
    [
        *[("a.wav", "i16", 1e-4), ("a.wav", "i24", 1e-6), ("a.wav", "f32", 0), ("a.flac", "i16", 1e-4)],
        *[("a.ogg", "i16", 0.05), ("a.mp3", "i16", 0.05)],
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_written_files_hold_the_samples(tmp_path, name, dtype, error, channels):
    samples = TONE if channels == 1 else np.stack([TONE, -TONE])
    write_sound(tmp_path / name, samples, RATE, dtype=dtype)
    read, rate = soundfile.read(tmp_path / name, dtype="float32", always_2d=True)
    assert rate == RATE
    assert np.abs(read[1000:15000] - np.atleast_2d(samples).T[1000:15000]).max() <= error


def test_long_vorbis_and_loud_samples(tmp_path):
    write_sound(tmp_path / "long.ogg", np.tile(TONE, 200), RATE)
    assert soundfile.info(tmp_path / "long.ogg").frames == 200 * RATE
    write_sound(tmp_path / "loud.wav", 4 * TONE, RATE)
    assert np.abs(soundfile.read(tmp_path / "loud.wav")[0]).max() >= 0.999
    assert (np.sign(soundfile.read(tmp_path / "loud.wav", dtype="int16")[0]) == np.sign(TONE)).mean() > 0.99


def test_wave_on_standard_output(capfdbinary):
    write_sound("-", TONE, RATE)
    read, _ = soundfile.read(io.BytesIO(capfdbinary.readouterr().out))
    assert len(read) == len(TONE)


def test_what_is_not_written(tmp_path):
    with pytest.raises(UsageError, match=r"\.wav, \.flac"):
        write_sound(tmp_path / "a.txt", TONE, RATE)
    for samples in (np.full(9, np.nan), np.zeros((1, 2, 3))):
        with pytest.raises(UsageError):
            write_sound(tmp_path / "a.wav", samples, RATE)
    with pytest.raises(UsageError, match="samples a second"):
        write_sound(tmp_path / "a.wav", TONE, 3)
    write_sound(tmp_path / "a.wav", TONE, RATE)
    with pytest.raises(UnsafeFileError):
        write_sound(tmp_path / "a.wav", TONE, RATE)
    write_sound(tmp_path / "a.wav", TONE, RATE, force=True)
