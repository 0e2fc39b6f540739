"""``draw``: the picture that Python draws, with its recipe; refusals in one line."""

import io
import json
import shutil
import struct
import zlib

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.text_to_image import stable_diffusion, stable_diffusion_3
from PIL import Image

pytestmark = pytest.mark.usefixtures("frozen")
SETTINGS = {"steps": 2, "seed": 7, "size": (32, 48), "negative": "blurry"}
WORDS = ["--steps", "2", "--seed", "7", "--size", "32x48", "--negative", "blurry"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("sd3")
    stable_diffusion_3(found, t5=False)
    return found


def test_the_picture_of_python_with_its_recipe(folder, tmp_path, capsys):
    out = tmp_path / "fox.png"
    assert run(["draw", str(folder), "-p", "a fox", "-o", str(out), *WORDS]) == 0
    assert f"{out}  32x48 · seed 7" in capsys.readouterr().out
    expected = cc.models.load(folder).draw("a fox", **SETTINGS)
    found = Image.open(out)
    assert np.array_equal(np.asarray(found), np.asarray(expected))
    first, negative, settings = found.text["parameters"].splitlines()
    assert (first, negative) == ("a fox", "Negative prompt: blurry")
    assert "Steps: 2, " in settings
    assert "CFG scale: 7, Seed: 7, Size: 32x48" in settings
    assert run(["draw", str(folder), "-p", "a fox", "-o", str(out), *WORDS]) == 5
    assert "Sampler: Euler, " in settings
    again = tmp_path / "again.png"
    assert run(["draw", str(folder), "--recipe", str(out), "-o", str(again)]) == 0
    assert again.read_bytes() == out.read_bytes()
    other = tmp_path / "other.png"
    assert run(["draw", str(folder), "--recipe", str(out), "-o", str(other), "--seed", "8"]) == 0
    assert "Seed: 8, " in Image.open(other).text["parameters"]


def test_no_negative_prompt_is_none_again(tmp_path):
    """XL takes zeros without a negative prompt, and not the embedding of an empty text."""
    sdxl, out, again = tmp_path / "sdxl", tmp_path / "fox.png", tmp_path / "again.png"
    stable_diffusion(sdxl, xl=True)
    assert run(["draw", str(sdxl), "-p", "a fox", "-o", str(out), *WORDS[:-2]]) == 0
    assert run(["draw", str(sdxl), "--recipe", str(out), "-o", str(again)]) == 0
    assert again.read_bytes() == out.read_bytes()


def test_pictures_without_a_recipe(folder, tmp_path, capsys):
    plain = tmp_path / "plain.png"
    Image.new("RGB", (8, 8)).save(plain)
    words = ["draw", str(folder), "-o", str(tmp_path / "a.png")]
    huge = tmp_path / "huge.png"
    content = plain.read_bytes()
    header = b"IHDR" + struct.pack(">2I", 30_000, 30_000) + content[24:29]
    huge.write_bytes(content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:])
    for further, why in (
        ([], "missing option -p"),
        (["--recipe", str(plain)], "no text chunk 'parameters'"),
        (["--recipe", str(huge)], "the picture cannot be read"),
    ):
        assert run([*words, *further]) in (2, 3)
        assert why in capsys.readouterr().err


def test_several_pictures_and_json(folder, tmp_path, capsys):
    line = ["draw", str(folder), "-p", "a fox", "-o", str(tmp_path / "fox.webp"), *WORDS, "--batch", "2", "--json"]
    assert run(line) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["seed"] for each in told["outputs"]] == [7, 8]
    for number in (1, 2):
        assert Image.open(tmp_path / f"fox-{number}.webp").size == (32, 48)
    comment = Image.open(tmp_path / "fox-1.webp").getexif().get_ifd(0x8769)[0x9286]
    assert comment.removeprefix(b"UNICODE\0").decode("utf-16-be") == told["recipe"]


def test_previews_are_removed(folder, tmp_path, monkeypatch):
    from candle_convert.convert.pictures import preview

    kept = []
    monkeypatch.setattr(preview, "INTERVAL", 0.0)
    original = preview.replacing
    monkeypatch.setattr(preview, "replacing", lambda path, **options: (kept.append(path), original(path, **options))[1])
    out = tmp_path / "fox.png"
    assert run(["draw", str(folder), "-p", "a fox", "-o", str(out), *WORDS, "--preview"]) == 0
    assert kept == [str(tmp_path / "fox.preview.png")]
    assert [path.name for path in tmp_path.iterdir()] == ["fox.png"]


def test_standard_output(folder, capsysbinary):
    assert run(["draw", str(folder), "-p", "a fox", "-o", "-", *WORDS]) == 0
    assert Image.open(io.BytesIO(capsysbinary.readouterr().out)).size == (32, 48)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["-o", "fox.txt"], "pictures are not written to such files"),
        (["--size", "big"], "--size 'big' is not a size"),
        (["--size", "33x32"], "multiples of 4"),
        (["--scheduler", "eular"], "unknown scheduler 'eular'"),
        (["--guidance", "nan"], "nan"),
        (["--steps", "2000"], "steps must be a whole number from 1 to 1000"),
    ],
)
def test_refusals(options, why, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["draw", str(folder), "-p", "a fox", "-o", "fox.png", "--steps", "1", "--size", "32x32", *options]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_directory_without_a_part(folder, tmp_path, capsys):
    copy = shutil.copytree(folder, tmp_path / "sd3", ignore=shutil.ignore_patterns("vae"))
    assert run(["draw", str(copy), "-p", "a fox", "-o", str(tmp_path / "a.png")]) == 3
    assert "without its vae" in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()


def test_other_models_do_not_draw(capsys, tmp_path):
    assert run(["draw", "examples/tiny_llama", "-p", "a fox", "-o", str(tmp_path / "a.png")]) == 2
    assert "cannot draw" in capsys.readouterr().err


def test_from_a_picture(folder, tmp_path):
    picture, mask = tmp_path / "in.png", tmp_path / "mask.png"
    Image.effect_noise((32, 48), 60).convert("RGB").save(picture)
    Image.linear_gradient("L").resize((32, 48)).save(mask)
    out = tmp_path / "out.png"
    words = ["draw", str(folder), "-p", "a fox", "-o", str(out), "--steps", "4", "--seed", "7", "--image", str(picture)]
    assert run([*words, "--strength", "0.5", "--mask", str(mask)]) == 0
    expected = cc.models.load(folder).draw("a fox", steps=4, seed=7, image=picture, mask=mask, strength=0.5)
    assert np.array_equal(np.asarray(Image.open(out)), np.asarray(expected))
    assert run([*words[:-2], "--force", "--strength", "0.5"]) == 2
    assert run([*words, "--force", "--control", str(picture)]) == 2
