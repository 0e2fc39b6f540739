"""``codec``: codes and samples in files are those of transformers and SNAC's authors; refusals in one line."""

import json

import candle_convert as cc
import numpy as np
import pytest
import soundfile
import torch
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.audio_codecs import CASES, codec, sound
from candle_convert.tests.builders.image_checkpoints import saved
from candle_convert.tests.builders.paths import EXAMPLES

RATE = 16_000


@pytest.fixture(scope="module")
def model():
    kind, settings = CASES["encodec"]
    return codec(kind, **settings)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    made = tmp_path_factory.mktemp("codec")
    saved(model, made / "encodec")
    kind, settings = CASES["dac"]
    saved(codec(kind, **settings), made / "dac")
    soundfile.write(made / "a.wav", sound(5_000), RATE, subtype="FLOAT")
    soundfile.write(made / "b.flac", np.stack([sound(9_000), sound(9_000, seed=2)], 1), 2 * RATE)
    (made / "text.wav").write_text("not a sound")
    return made


@pytest.fixture(autouse=True)
def _there(folder, monkeypatch):
    monkeypatch.chdir(folder)


def ran(capsys, *words):
    code = run([*map(str, words)])
    return code, *capsys.readouterr()


def test_round_trip(model, tmp_path, capsys):
    code, out, _ = ran(capsys, "codec", "encode", "encodec", "a.wav", tmp_path / "a.npz", "--bandwidth", "26.7")
    assert code == 0
    assert "0.3 s in 8 codebooks" in out
    with torch.no_grad():
        expected = model.encode(torch.from_numpy(sound(1, 1, 5_000)), bandwidth=26.7)
        audio = model.decode(expected.audio_codes, [None]).audio_values.numpy()[0, 0, :5_000]
    found = np.load(tmp_path / "a.npz")
    assert np.array_equal(found["codes"], expected.audio_codes[:, 0].numpy())
    assert (int(found["length"]), int(found["rate"]), found["codes"].dtype) == (5_000, RATE, np.uint8)
    code, out, _ = ran(capsys, "codec", "decode", "encodec", tmp_path / "a.npz", tmp_path / "a.wav")
    assert code == 0
    samples, rate = soundfile.read(tmp_path / "a.wav", dtype="float32")
    assert rate == RATE
    assert np.abs(samples - np.clip(audio, -1, 1)).max() <= 2**-14


def test_several_files_of_any_kind(tmp_path, capsys):
    words = ["codec", "encode", "encodec", "a.wav", "text.wav", "b.flac", "-o", tmp_path, "--codebooks", "3", "--json"]
    code, out, _ = ran(capsys, *words)
    said = json.loads(out)
    assert code == 3
    assert [each["input"] for each in said["results"]] == ["a.wav", "b.flac"]
    assert {each["codebooks"] for each in said["results"]} == {3}
    assert said["errors"][0]["code"] == "E-SOUND-FORMAT"
    assert int(np.load(tmp_path / "b.npz")["length"]) == 4_500
    code, out, _ = ran(capsys, "codec", "decode", "encodec", tmp_path, tmp_path / "back", "--format", "flac", "--json")
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["a.flac", "b.flac"]
    assert soundfile.info(tmp_path / "back" / "b.flac").frames == 4_500


def test_stereo_chunks(tmp_path, capsys):
    kind, settings = CASES["encodec-stereo"]
    saved(codec(kind, **settings), tmp_path / "stereo")
    assert ran(capsys, "codec", "encode", tmp_path / "stereo", "b.flac", tmp_path / "b.npz")[0] == 0
    assert ran(capsys, "codec", "decode", tmp_path / "stereo", tmp_path / "b.npz", tmp_path / "b.wav")[0] == 0
    ours = cc.models.load(tmp_path / "stereo")
    samples, rate = soundfile.read("b.flac", dtype="float32", always_2d=True)
    expected = np.clip(ours.decode(ours.encode(samples.T, rate))[0], -1, 1)
    found, _ = soundfile.read(tmp_path / "b.wav", dtype="float32")
    assert np.abs(found.T - expected).max() <= 2**-14


def changed(path, target, **arrays):
    np.savez(target, **{**np.load(path), **arrays})
    return target


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"codes": np.full((1, 12, 4), 32)}, "32 is not a code"),
        ({"codes": np.zeros((1, 13, 4), np.uint8)}, "codes of 13 quantizers"),
        ({"codes": np.zeros((12, 4), np.uint8)}, "codes have another shape"),
        ({"codes": np.zeros((1, 12, 4), np.float32)}, "these are not codes"),
        ({"codes": np.zeros((2, 12, 4), np.uint8)}, "codes have 2 chunks"),
        ({"codes": np.zeros((1, 12, 0), np.uint8)}, "these are not codes"),
        ({"rate": 24_000}, "the codes are of another codec: rate differs"),
        ({"length": -1}, "length is not a number of samples"),
        ({"padding": 500}, "more padding than codes"),
    ],
)
def test_codes_that_are_refused(arrays, why, tmp_path, capsys):
    run(["codec", "encode", "encodec", "a.wav", str(tmp_path / "a.npz"), "-q"])
    path = changed(tmp_path / "a.npz", tmp_path / "bad.npz", **arrays)
    code, _out, err = ran(capsys, "codec", "decode", "encodec", path, tmp_path / "bad.wav")
    assert code in (2, 3)
    assert why in err
    assert err.count("\n") == 1
    assert not (tmp_path / "bad.wav").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["encode", "encodec", "a.wav", "x.npz", "--codebooks", "13"], "13 quantizers"),
        (["encode", "encodec", "a.wav", "x.npz", "--bandwidth", "0.1"], "a bandwidth of 0.1 kbit/s"),
        (["encode", "encodec", "text.wav", "x.npz"], "not audio of a known format"),
        (["encode", "encodec", "a.wav", "a.wav", "x"], "two inputs have the output a.npz"),
        (["decode", "encodec", "a.wav", "x.wav"], "a.wav"),
        (["decode", "dac", "a.npz", "x.wav"], "the codes are of another codec"),
        (["decode", "encodec", "short.npz", "x.wav"], "short.npz"),
        (["decode", "encodec", "a.npz", "x.txt"], "audio is not written to such files"),
    ],
)
def test_refusals(words, why, folder, capsys):
    if not (folder / "a.npz").exists():
        run(["codec", "encode", "encodec", "a.wav", "a.npz", "-q"])
        (folder / "short.npz").write_bytes((folder / "a.npz").read_bytes()[:-40])
    before = set(folder.iterdir())
    code, _, err = ran(capsys, "codec", *words)
    assert code in (2, 3)
    assert why in err
    assert err.count("\n") == 1
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["digits.onnx", "tiny_llama"])
def test_models_that_are_no_codecs(name, tmp_path, capsys):
    soundfile.write(tmp_path / "a.wav", np.full(800, 0.1, np.float32), RATE)
    assert run(["codec", "encode", str(EXAMPLES / name), str(tmp_path / "a.wav"), str(tmp_path / "a.npz")]) == 2
    said = capsys.readouterr().err
    assert "not an audio codec" in said
    assert said.count("\n") == 1
