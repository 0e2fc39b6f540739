"""``predict``, ``embed`` and ``classify`` with pictures: what they print and write, and what they refuse."""

import io
import json
import os
import sys

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.mobilenet_v2 import mobilenet_v2
from candle_convert.tests.builders.pictures import MADE
from candle_convert.tests.builders.segment_anything import segment_anything
from PIL import Image

SETTINGS = {
    "image_size": 32, "patch_size": 16, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32,
}  # fmt: skip
PREPARATION = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = saved(image_model("ViTForImageClassification", **SETTINGS, num_labels=3), tmp_path / "model")
    (model / "preprocessor_config.json").write_text(json.dumps(PREPARATION))
    (tmp_path / "photos").mkdir()
    for number, picture in enumerate(MADE):
        Image.fromarray(picture).save(tmp_path / "photos" / f"{number}.png")
    return tmp_path


def emitted(capsys, *words):
    """The JSON that a command prints."""
    assert run([*words, "--threads", "1", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_labels_of_a_folder_and_of_a_pattern(folder, capsys):
    expected = models.load("model", threads=1).predict(sorted(map(str, folder.glob("photos/*.png"))))
    for words in (["photos"], ["photos/*.png"], [f"photos/{number}.png" for number in range(4)]):
        found = emitted(capsys, "predict", "model", *words, "--batch", "3")
        assert found["task"] == "image-classification"
        assert [each["input"] for each in found["results"]] == [f"photos/{number}.png" for number in range(4)]
        for each, rows in zip(found["results"], expected, strict=True):
            assert [row["label"] for row in each["found"]] == [row["label"] for row in rows]
            assert [row["score"] for row in each["found"]] == pytest.approx([row["score"] for row in rows])
    assert run(["predict", "model", "photos/0.png", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["label", "score"]
    assert len(lines) == 3


def test_annotated_pictures(folder, capsys):
    found = emitted(capsys, "predict", "model", "photos", "photos/0.png", "-o", "out")
    names = ["0.png", "1.png", "2.png", "3.png", "0-2.png"]
    assert [each["path"] for each in found["outputs"]] == [f"out/{name}" for name in names]
    for number, picture in enumerate(MADE):
        drawn = np.asarray(Image.open(f"out/{number}.png"))
        assert drawn.shape == picture.shape
        assert (drawn != picture).any()
    assert run(["predict", "model", "photos", "-o", "out", "-q"]) == 5
    assert run(["predict", "model", "photos", "-o", "out", "-q", "--force"]) == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["-o", "photos/0.png"], "not a folder"),
        (["--threshold", "nan"], "nan is not a finite number"),
        (["--iou", "2"], "2.0 is not in the range"),
        (["--points", "nan,1"], "--points 'nan,1' is not X,Y"),
        (["--box", "1,2,inf,4"], "--box '1,2,inf,4' is not X0,Y0"),
    ],
)
def test_options_without_a_meaning_get_one_line(words, line, folder, capsys):
    assert run(["predict", "model", "photos", *words]) != 0
    assert line in capsys.readouterr().err


def test_preparation_of_another_file(folder, capsys):
    usual = emitted(capsys, "predict", "model", "photos/0.png")["results"]
    (folder / "model" / "preprocessor_config.json").rename("own.json")
    assert run(["predict", "model", "photos/0.png", "-q"]) == 4
    assert "E-PREPROCESSOR-NONE" in capsys.readouterr().err
    assert emitted(capsys, "predict", "model", "photos/0.png", "--preprocessor", "own.json")["results"] == usual
    (folder / "other.json").write_text("[1]")
    assert run(["predict", "model", "photos/0.png", "--preprocessor", "other.json", "-q"]) == 3


def test_vectors(folder, capsys):
    expected = models.load("model", threads=1, task="image-feature-extraction").embed([MADE[0], MADE[1]])
    found = emitted(capsys, "embed", "model", "photos/0.png", "photos/1.png")
    assert np.allclose(found["vectors"], expected, atol=1e-5)
    assert run(["embed", "model", "photos", "-o", "v.npy", "--normalize"]) == 0
    assert np.allclose(np.linalg.norm(np.load("v.npy"), axis=1), 1, atol=1e-5)
    capsys.readouterr()
    assert run(["embed", "model", "photos", "--similarity"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["1", "photos/0.png", "1.000"]
    assert run(["embed", "model", "photos", "--pooling", "cls", "-q"]) == 2


def test_options_of_texts_are_refused(folder, capsys):
    for words in (["predict", "--context", "x"], ["predict", "--threshold", "0.5"], ["embed", "--prompt-name", "x"]):
        assert run([words[0], "model", "photos/0.png", *words[1:], "-q"]) == 2
        assert "no option" in capsys.readouterr().err


def test_names_on_standard_input(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"photos/0.png\nphotos/2.png\n")))
    assert [each["input"] for each in emitted(capsys, "predict", "model", "-f", "-")["results"]] == [
        "photos/0.png",
        "photos/2.png",
    ]


def test_labels_of_similar_pictures(folder, capsys):
    for label, numbers in {"one": (0, 1), "two": (2,)}.items():
        (folder / "known" / label).mkdir(parents=True)
        for number in numbers:
            Image.fromarray(MADE[number]).save(folder / "known" / label / f"{number}.png")
    found = emitted(capsys, "classify", "model", "photos", "--against", "known", "--neighbors", "1")
    assert [each["label"] for each in found["results"][:3]] == ["one", "one", "two"]
    assert found["results"][2]["nearest"] == "known/two/2.png"
    assert found["results"][0]["cosine"] == pytest.approx(1, abs=1e-5)
    assert run(["classify", "model", "photos", "--against", "photos", "-q"]) == 2
    assert run(["classify", "model", "photos", "--against", "nowhere", "-q"]) == 7


@pytest.mark.parametrize(
    ("name", "content", "status", "code"),
    [
        ("x.png", b"", 3, "E-PICTURE-FORMAT"),
        ("x.png", b"text", 3, "E-PICTURE-FORMAT"),
        ("x.ppm", b"P6 99 99 255\n" + bytes(100), 3, "E-PICTURE-DAMAGED"),
        ("x.ppm", b"P6 60000 60000 255\n" + bytes(100), 6, "E-RUN-MEMORY"),
        ("missing.png", None, 7, "E-IO-OPEN"),
    ],
)
def test_bad_pictures_get_one_line(folder, capsys, name, content, status, code):
    if content is not None:
        (folder / name).write_bytes(content)
    assert run(["predict", "model", name, "-q"]) == status
    error = capsys.readouterr().err.strip()
    assert f"{code}  {name}: " in error
    assert "\n" not in error


def test_folders_without_pictures(folder, capsys):
    (folder / "empty").mkdir()
    assert run(["predict", "model", "empty", "-q"]) == 2
    assert "holds no pictures" in capsys.readouterr().err


def test_preparations_that_cannot_be_exported_get_one_line(folder, capsys):
    assert run(["convert", "model", "m.gguf", "--with-preprocessing"]) == 2
    assert "--with-preprocessing is about nodes" in capsys.readouterr().err
    (folder / "model" / "preprocessor_config.json").write_text("{")
    assert run(["convert", "model", "m.onnx", "--with-preprocessing"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("✗ E-CONFIG-JSON")
    assert said.count("\n") == 1


def test_folders_of_labels_that_cannot_be_read(folder, capsys):
    (folder / "labeled" / "dog").mkdir(parents=True)
    os.mkfifo(folder / "labeled" / "dog" / "pipe.png")
    (folder / "labeled" / "dog" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert run(["classify", "model", "photos/0.png", "--against", "labeled", "-q"]) == 2
    said = [line.split()[1] for line in capsys.readouterr().err.splitlines() if line.startswith("✗")]
    assert said == ["E-PICTURE-FORMAT", "E-IO-READ", "E-PICTURE-NONE"]


def test_masks(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(segment_anything(), tmp_path / "sam")
    Image.fromarray(MADE[0]).save("a.png")
    expected = models.load("sam", threads=1).predict("a.png", points=[[40, 60], [100, 20, 0]])
    words = ["predict", "sam", "a.png", "--points", "40,60", "--points", "100,20,0", "-o", "out"]
    found = emitted(capsys, *words)["results"][0]["found"]
    assert [each["segmentation"] for each in found] == [each["mask"].to_coco() for each in expected]
    assert (np.asarray(Image.open("out/a.png"))[np.asarray(expected[0]["mask"])] != MADE[0][0, 0]).any()
    assert run(["predict", "sam", "a.png", "--box", "10,20,90,80", "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["number", "score", "stability", "area", "xmin", "ymin", "xmax", "ymax"]
    assert len(lines) == 2
    everything = ["--grid", "3", "--stability", "0", "--threshold", "0", "--iou", "1", "--top", "2"]
    assert len(emitted(capsys, "predict", "sam", "a.png", *everything)["results"][0]["found"]) == 2
    assert run(["predict", "sam", "a.png", "--box", "1,2,x,4"]) == 2
    assert "X0,Y0,X1,Y1" in capsys.readouterr().err


def test_damaged_pictures_among_others(folder, capsys):
    names = [f"photos/{number}.png" for number in range(4)]
    usual = emitted(capsys, "embed", "model", *names)["vectors"]
    (folder / "photos" / "1b.png").write_bytes((folder / "photos" / "1.png").read_bytes()[:900])
    (folder / "photos" / "3b.png").write_bytes(b"text")
    assert run(["predict", "model", "photos", "--batch", "3", "--top", "1", "-o", "out"]) == 3
    shown = capsys.readouterr()
    errors = shown.err.strip().splitlines()
    assert ["E-PICTURE-DAMAGED" in errors[0], "1b.png" in errors[0], "E-PICTURE-FORMAT" in errors[1]] == [True] * 3
    assert [line.split()[0] for line in shown.out.splitlines()[1:5]] == names
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["0.png", "1.png", "2.png", "3.png"]
    assert run(["embed", "model", "photos", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert np.allclose(found["vectors"], usual, atol=1e-6)
    assert [each["input"] for each in found["errors"]] == ["photos/1b.png", "photos/3b.png"]
    assert found["ok"] is False
    (folder / "known" / "one").mkdir(parents=True)
    for name in ("0.png", "1b.png"):
        (folder / "known" / "one" / name).write_bytes((folder / "photos" / name).read_bytes())
    assert run(["classify", "model", "photos", "--against", "known", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [each["input"] for each in found["results"]] == names
    assert len(found["errors"]) == 3
    assert run(["predict", "model", "photos/1b.png", "photos/3b.png"]) == 3
    assert not capsys.readouterr().out.strip()


@pytest.mark.parametrize("setting", [{"rescale_factor": 1e308}, {"image_std": [1e-320] * 3, "do_normalize": True}])
def test_settings_that_overflow_are_an_error(folder, capsys, setting):
    (folder / "model" / "preprocessor_config.json").write_text(json.dumps({**PREPARATION, **setting}))
    (folder / "known" / "x").mkdir(parents=True)
    Image.fromarray(MADE[0]).save(folder / "known" / "x" / "0.png")
    for words in (["predict"], ["predict", "--json"], ["embed", "-o", "v.npy"], ["classify", "--against", "known"]):
        command, *options = words
        assert run([command, "model", "photos/0.png", *options, "--threads", "1"]) == 4
        said = capsys.readouterr()
        assert "E-MODEL-NAN" in said.out + said.err
        assert "nan" not in said.out or json.loads(said.out)["error"]["code"] == "E-MODEL-NAN"
    assert not (folder / "v.npy").exists()


def test_a_thousand_labels_are_imagenets_and_prepared_as_such(tmp_path, capsys):
    """As torchvision evaluates: the shorter edge 256, the middle 224, its mean and deviation; said in a warning."""
    model = mobilenet_v2(tmp_path / "m.pth", 1000)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 120, 3), np.uint8))
    image.save(tmp_path / "p.png")
    pixels = np.asarray(image.resize((341, 256), Image.Resampling.BILINEAR).crop((58, 16, 282, 240)), np.float32) / 255
    pixels = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    with torch.no_grad():
        scores = model(torch.tensor(pixels.transpose(2, 0, 1)[None], dtype=torch.float32)).softmax(-1)[0]
    cc.convert(tmp_path / "m.pth", tmp_path / "m.onnx")
    for path in ("m.pth", "m.onnx"):
        assert run(["predict", str(tmp_path / path), str(tmp_path / "p.png"), "--json", "--top", "1000"]) == 0
        shown = capsys.readouterr()
        assert "prepared as for ImageNet, 224 x 224" in shown.err + shown.out
        found = {each["label"]: each["score"] for each in json.loads(shown.out)["results"][0]["found"]}
        assert found["tench"] == pytest.approx(float(scores[0]), rel=1e-3)
        assert max(found.values()) == pytest.approx(float(scores.max()), rel=1e-3)
        assert run(["predict", str(tmp_path / path), str(tmp_path / "p.png"), "--preprocessor", "imagenet"]) == 0
        assert "ImageNet" not in capsys.readouterr().err


def test_few_labels_need_a_stated_preparation(tmp_path, capsys):
    mobilenet_v2(tmp_path / "m.pth", 7)
    Image.new("RGB", (40, 40)).save(tmp_path / "p.png")
    assert run(["predict", str(tmp_path / "m.pth"), str(tmp_path / "p.png")]) != 0
    assert "--preprocessor FILE or imagenet" in capsys.readouterr().err
    assert run(["predict", str(tmp_path / "m.pth"), str(tmp_path / "p.png"), "--preprocessor", "imagenet"]) == 0
