"""``predict`` and ``embed`` on audio files: tables, JSON, folders, standard input, damaged files."""

import io
import json

import numpy as np
import pytest
import safetensors.torch
import soundfile
import torch
import transformers
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.audio_networks import AST, network
from candle_convert.tests.builders.image_checkpoints import image_model, saved

NOISE = 0.1 * np.random.default_rng(0).standard_normal((12_000, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("sounds")
    model = image_model("ASTForAudioClassification", **AST, id2label=dict(enumerate("abcde")))
    transformers.ASTFeatureExtractor(num_mel_bins=32, max_length=40).save_pretrained(found / "model")
    saved(model, found / "model")
    (found / "heard").mkdir()
    soundfile.write(found / "heard" / "one.wav", NOISE, 44_100)
    soundfile.write(found / "heard" / "two.flac", NOISE[:, 0], 16_000)
    (found / "text.wav").write_text("not a sound")
    return found


def ran(capsys, *words):
    code = run([*map(str, words)])
    return code, *capsys.readouterr()


def test_labels_of_a_folder(folder, capsys):
    code, out, _ = ran(capsys, "predict", folder / "model", folder / "heard", "--top", 2)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["sound", "label", "score"]
    assert [line.split()[0].rpartition("/")[2] for line in lines[1:]] == ["one.wav", "one.wav", "two.flac", "two.flac"]


def test_json_and_damaged_files(folder, capsys):
    code, out, _ = ran(capsys, "predict", folder / "model", folder / "text.wav", folder / "heard", "--json")
    said = json.loads(out)
    assert code == 3
    assert said["task"] == "audio-classification"
    assert [len(each["found"]) for each in said["results"]] == [5, 5]
    assert said["errors"][0]["code"] == "E-SOUND-FORMAT"
    code, out, err = ran(capsys, "predict", folder / "model", folder / "text.wav")
    assert (code, out) == (3, "")
    assert len(err.strip().splitlines()) == 1


def test_standard_input(folder, capsys, monkeypatch):
    heard = (folder / "heard" / "one.wav").read_bytes()
    _, expected, _ = ran(capsys, "predict", folder / "model", folder / "heard" / "one.wav")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(heard)))
    assert ran(capsys, "predict", folder / "model", "-")[:2] == (0, expected)


def test_vectors(folder, capsys):
    code, out, _ = ran(capsys, "embed", folder / "model", folder / "heard", "--similarity", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["width"] == AST["hidden_size"]
    np.testing.assert_allclose(np.diag(said["similarity"]), 1, atol=1e-6)


def test_pitch(folder, tmp_path, capsys):
    torch.manual_seed(0)
    model, _ = network("crepe")
    safetensors.torch.save_file(model.state_dict(), tmp_path / "crepe.safetensors")
    code, out, _ = ran(capsys, "predict", tmp_path / "crepe.safetensors", folder / "heard" / "two.flac")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["time", "hertz", "confidence"]
    assert [float(line.split()[0]) for line in lines[1:4]] == [0.0, 0.01, 0.02]
    assert len(lines) == 2 + len(NOISE) // 160
    assert all(40 < float(line.split()[1]) < 2_100 for line in lines[1:])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["embed", "MODEL", "HEARD", "--pooling", "mean"], "vectors of sounds have no option --pooling"),
        (["predict", "MODEL", "HEARD", "-o", "boxes"], "takes sounds; --output is for pictures"),
        (["predict", "MODEL", "HEARD", "--grid", "4"], "no option grid"),
        (["predict", "MODEL", "absent.wav"], "no such file, folder or pattern of sounds"),
    ],
)
def test_what_is_refused(folder, capsys, words, why):
    places = {"MODEL": folder / "model", "HEARD": folder / "heard"}
    code, _, err = ran(capsys, *(places.get(word, word) for word in words))
    assert code != 0
    assert why in err
