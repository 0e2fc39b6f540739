"""Sounds are read as libsndfile decodes them, from files, bytes, pipes and arrays, and resampled in blocks as soxr
resamples all at once."""

import contextlib
import io
import os
import struct
import threading
import tracemalloc
import warnings

import numpy as np
import pytest
import soundfile
import soxr
from candle_convert.models.preprocess.audio.sound import ShortSoundWarning, opened_sound, samples_of
from candle_convert.runtime.base.errors import (
    Error,
    FileAccessError,
    FormatError,
    LimitError,
    UnsupportedError,
    UsageError,
)
from candle_convert.runtime.base.limits import limits
from candle_convert.runtime.plugin import optional_package

RATE = 16_000
TONE = (0.5 * np.sin(np.arange(3 * RATE) * (2 * np.pi * 440 / RATE))).astype(np.float32)


def encoded(samples, rate=RATE, subtype="PCM_16", format="WAV"):
    made = io.BytesIO()
    soundfile.write(made, samples, rate, subtype=subtype, format=format)
    return made.getvalue()


WAVE = encoded(TONE)


@pytest.mark.parametrize(
    ("format", "subtype"),
    [
        *(("WAV", subtype) for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
        *[("WAVEX", "PCM_16"), ("AIFF", "PCM_24"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS")],
        *[("MP3", "MPEG_LAYER_III"), ("AU", "PCM_16"), ("CAF", "FLOAT"), ("W64", "PCM_16"), ("RF64", "PCM_16")],
    ],
)
def test_files_bytes_and_pipes_are_decoded_alike(tmp_path, format, subtype):
    data = encoded(TONE, subtype=subtype, format=format)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    path = tmp_path / "named.raw"
    path.write_bytes(data)
    np.testing.assert_allclose(samples_of(path, RATE), expected, atol=1e-6)
    np.testing.assert_allclose(samples_of(data, RATE), expected, atol=1e-6)
    np.testing.assert_allclose(samples_of(piped(data), RATE), expected, atol=1e-6)


def piped(data):
    """The reading end of a pipe that gets the data."""
    reader, writer = os.pipe()

    def write():
        with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as file:
            file.write(data)

    threading.Thread(target=write, daemon=True).start()
    return os.fdopen(reader, "rb")


def test_named_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(WAVE,), daemon=True).start()
    assert len(samples_of(path, RATE)) == len(TONE)


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_pipe_of_unknown_length_is_heard_as_it_arrives(length):
    """Programs that write to a pipe do not know the length; a block is there before the next is written."""
    reader, writer = os.pipe()
    start = WAVE.index(b"data") + 4
    with os.fdopen(reader, "rb") as file, os.fdopen(writer, "wb", buffering=0) as source:
        source.write(WAVE[:start] + struct.pack("<I", length) + WAVE[start + 4 : start + 4 + 2 * RATE])
        with opened_sound(file, RATE) as sound:
            assert sound.seconds is None
            blocks = sound.blocks(RATE, seconds=1.0)
            np.testing.assert_allclose(next(blocks), TONE[:RATE], atol=1e-4)
            source.write(WAVE[start + 4 + 2 * RATE :] + b"\0")
            source.close()
            assert sum(map(len, blocks)) == len(TONE) - RATE


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000, 192_000])
@pytest.mark.parametrize("seconds", [0.1, 10.0])
def test_resampling_does_not_depend_on_blocks(rate, seconds):
    noise = np.random.default_rng(0).standard_normal(2 * rate).astype(np.float32)
    with opened_sound((noise, rate), RATE) as sound:
        found = np.concatenate(list(sound.blocks(RATE, seconds=seconds)))
    np.testing.assert_allclose(found, soxr.resample(noise, rate, RATE, quality="HQ"), atol=1e-6)


def test_channels_are_mixed_or_repeated():
    eight = np.random.default_rng(0).uniform(-1, 1, (1000, 8)).astype(np.float32)
    data = encoded(eight, subtype="FLOAT")
    np.testing.assert_allclose(samples_of(data, RATE), eight.mean(1), atol=1e-6)
    np.testing.assert_array_equal(samples_of(data, RATE, 8), eight.T)
    assert samples_of(data, RATE, 2).shape == (2, 1000)
    np.testing.assert_array_equal(samples_of(encoded(TONE), RATE, 2)[1], samples_of(encoded(TONE), RATE))
    np.testing.assert_allclose(samples_of((eight * 32767).astype(np.int16), RATE), eight.mean(1), atol=1e-4)


def announced(seconds, kept=1000, rate=RATE):
    """The first bytes of a WAV whose header tells another length."""
    start = WAVE.index(b"data") + 4
    header = bytearray(WAVE[: start + 4])
    header[24:28] = struct.pack("<I", rate)
    header[start : start + 4] = struct.pack("<I", 2 * rate * seconds)
    return bytes(header) + WAVE[start + 4 : start + 4 + kept]


def test_header_of_a_day_on_a_short_file_is_what_is_there():
    data = announced(86_400)
    tracemalloc.start()
    for given in (data, piped(data)):
        with pytest.warns(ShortSoundWarning, match=r"cut short: its header tells 86,400.0 s, 0.0 s are there"):
            assert len(samples_of(given, RATE)) == 500
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


@pytest.mark.parametrize("length", [0, 0x7FFFFFFF, 0x7FFFF000, 0x80000000, 0xFFFFFFFF])
def test_headers_of_programs_that_write_to_a_pipe_are_no_claims(length):
    start = WAVE.index(b"data") + 4
    data = WAVE[:start] + struct.pack("<I", length) + WAVE[start + 4 :]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(samples_of(piped(data), RATE)) == len(TONE)
        if length:
            assert len(samples_of(data, RATE)) == len(TONE)


@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG", "MP3"])
def test_whole_files_are_not_called_short(format):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seconds in (0.1, 1, 3):
            assert len(samples_of(encoded(TONE[: int(seconds * RATE)], subtype=None, format=format), RATE))


@pytest.mark.filterwarnings("ignore::candle_convert.models.preprocess.audio.sound.ShortSoundWarning")
@pytest.mark.parametrize("format", ["WAV", "FLAC", "OGG", "MP3"])
def test_truncated_files_are_refused_or_read_up_to_there(format):
    data = encoded(TONE, subtype=None, format=format)
    lengths = sorted({*range(0, 80, 7), *range(80, len(data), len(data) // 23)})
    outcomes = set()
    for length in lengths:
        for given in (data[:length], piped(data[:length])):
            try:
                outcomes.add(0 < len(samples_of(given, RATE)) <= len(TONE) + RATE)
            except FormatError as error:
                outcomes.add(error.code.startswith("E-SOUND-"))
    assert outcomes == {True}


PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
NAN, ENDLESS = (np.array([0.1, value, 0.2], np.float32) for value in (np.nan, np.inf))


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "E-SOUND-FORMAT", "the file is empty"),
        (PNG, "E-SOUND-FORMAT", "not audio"),
        (b"Dear friend, this is a text and not a sound." * 9, "E-SOUND-FORMAT", "not audio"),
        ("\ufeffDear friend".encode("utf-16"), "E-SOUND-FORMAT", "not audio"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "E-SOUND-FORMAT", "not audio"),
        (encoded(TONE[:0]), "E-SOUND-EMPTY", "no samples"),
        (encoded(NAN, subtype="FLOAT"), "E-SOUND-VALUES", "finite"),
        (encoded(ENDLESS, subtype="DOUBLE"), "E-SOUND-VALUES", "finite"),
        (announced(1, rate=1), "E-SOUND-RATE", "1 sample a second"),
        (announced(1, rate=2_000_000), "E-SOUND-RATE", "2,000,000"),
    ],
    ids=["empty", "png", "text", "utf-16", "webp", "no samples", "nan", "infinite", "1 Hz", "2 MHz"],
)
def test_other_files_are_refused_in_a_line(tmp_path, data, code, words):
    path = tmp_path / "x.wav"
    path.write_bytes(data)
    for given in (path, piped(data)):
        with pytest.raises(Error) as caught:
            samples_of(given, RATE)
        assert caught.value.code == code
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_compressed_wave_of_a_pipe_is_refused():
    law = encoded(TONE, subtype="ULAW")
    assert len(samples_of(law, RATE)) == len(TONE)
    with pytest.raises(UnsupportedError, match="coding 7"):
        samples_of(piped(law), RATE)


def test_paths_and_values_of_other_kinds(tmp_path):
    with pytest.raises(FileAccessError, match="directory"):
        samples_of(tmp_path, RATE)
    with pytest.raises(FileAccessError, match="No such file"):
        samples_of(tmp_path / "x.wav", RATE)
    for other in (None, 3, {}, np.zeros((2, 3, 4)), np.zeros(0, np.float32), np.zeros(4, np.int64), ["a"]):
        with pytest.raises(UsageError):
            samples_of(other, RATE)


def test_memory_limit():
    with limits(memory="64KiB"), pytest.raises(LimitError):
        samples_of(encoded(TONE), RATE)


@pytest.mark.parametrize(("name", "given"), [("soundfile", WAVE), ("soxr", (TONE, 8_000))])
def test_missing_library_is_named(monkeypatch, name, given):
    def absent(wanted):
        raise ModuleNotFoundError(wanted)

    monkeypatch.setattr(optional_package.importlib, "import_module", absent)
    with pytest.raises(UnsupportedError, match=rf"{name}.*candle-convert\[audio\]"):
        samples_of(given, RATE)
