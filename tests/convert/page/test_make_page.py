"""Folders of pages: what is in them, and refusals in one line that leave nothing behind."""

import json
import os
import subprocess

import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.write import pipeline
from candle_convert.models.pipelines.image.image_classification import imagenet_labels
from candle_convert.tests.builders.darknet_results import CFG, weights
from candle_convert.tests.builders.denoisers import unet
from candle_convert.tests.builders.image_checkpoints import VIT, VIT_PREPARATION, image_model, saved
from candle_convert.tests.builders.npm_packages import ENGINE, npm_packages
from candle_convert.tests.builders.paths import EXAMPLES
from candle_convert.tests.builders.tiny_llama import written


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    npm_packages(tmp_path / "npm")
    written(tmp_path / "lm.gguf")
    return tmp_path


def files(site):
    return {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}


def test_what_a_page_holds(folder, capsys):
    assert run(["page", "lm.gguf", "-o", "site", "--runtime", "npm", "--dtype", "q4", "--title", "A & B"]) == 0
    assert "text_generation with @huggingface/transformers 4.3.0 and onnxruntime-web 1.30.0" in capsys.readouterr().out
    found = files(folder / "site")
    assert {each for each in found if not each.startswith("model/")} == {
        "index.html", "page.css", "page.js", "page.json", "worker.js", "runtime.js", "generation.js", "picture.js",
        "prepare.js", "kinds/text_generation.js", "runtime/transformers.min.js", f"runtime/{ENGINE}",
        "runtime/LICENSE.transformers", "runtime/LICENSE.onnxruntime-web",
    }  # fmt: skip
    assert {"model/onnx/model_q4.onnx", "model/config.json", "model/tokenizer.json"} <= found
    said = json.loads((folder / "site" / "page.json").read_text())
    assert (said["kind"], said["title"], said["dtype"]) == ("text_generation", "A & B", "q4")
    assert run(["page", "lm.gguf", "-o", "site", "--runtime", "npm", "-q"]) == 5
    assert run(["page", "lm.gguf", "-o", "site", "--runtime", "npm", "-q", "--force"]) == 0
    assert "model/onnx/model.onnx" in files(folder / "site")


def test_packages_of_the_folders_above(folder):
    (folder / "npm" / "below").mkdir()
    os.chdir(folder / "npm" / "below")
    assert run(["page", "../../lm.gguf", "-o", "site", "-q"]) == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 4, "no npm package @huggingface/transformers in the folders node_modules here and above"),
        (["--runtime", "other"], 4, "Run npm install onnxruntime-web @huggingface/transformers"),
        (["--runtime", "mixed"], 4, "transformers needs onnxruntime-web 1.31.0"),
        (["--runtime", "empty"], 4, "the package has no file dist/transformers.min.js"),
        (["--runtime", "damaged"], 3, "not a package.json"),
        (["--runtime", "older"], 4, "@huggingface/transformers 4.3.0 runs no models of type llama"),
        (["--dtype", "q5"], 2, "q5"),
    ],
)
def test_what_is_refused(folder, capsys, words, code, message):
    npm_packages(folder / "mixed", wanted="1.31.0")
    npm_packages(folder / "older", model_type="llama4")
    for name, file, text in (("empty", "dist/transformers.min.js", None), ("damaged", "package.json", "{")):
        path = npm_packages(folder / name) / "node_modules" / "@huggingface/transformers" / file
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
    before = files(folder)
    assert run(["page", "lm.gguf", "-o", "site", *words]) == code
    assert message in capsys.readouterr().err
    assert files(folder) == before


def test_other_outputs_stay(folder, capsys):
    (folder / "site").mkdir()
    (folder / "site" / "mine.txt").write_text("mine")
    for more in ([], ["--force"]):
        assert run(["page", "lm.gguf", "-o", "site", "--runtime", "npm", *more]) == 5
    assert files(folder / "site") == {"mine.txt"}


def test_a_model_without_a_page(folder, capsys):
    made = saved(image_model("ViTModel", **VIT), folder / "vit")
    (made / "preprocessor_config.json").write_text(VIT_PREPARATION)
    assert run(["page", "vit", "-o", "site", "--runtime", "npm"]) == 4
    said = capsys.readouterr().err
    assert "no page runs models for image-feature-extraction" in said
    assert "text-generation" in said
    assert not (folder / "site").exists()


def test_a_network_without_a_task(folder, capsys):
    unet(folder / "unet")
    assert run(["page", "unet", "-o", "site", "--runtime", "npm"]) == 4
    assert "no page runs models for an unknown task" in capsys.readouterr().err


def test_yolo_v3_is_refused_before_its_export(folder, monkeypatch, capsys):
    (folder / "tiny.cfg").write_text(CFG)
    (folder / "tiny.weights").write_bytes(weights())
    monkeypatch.setattr(pipeline, "execute", None)
    assert run(["page", "tiny.weights", "-o", "site", "--runtime", "npm"]) == 4
    assert "pages run no YOLO v3" in capsys.readouterr().err


def test_a_thousand_unnamed_labels_are_those_of_imagenet(folder):
    made = saved(image_model("ViTForImageClassification", **VIT | {"num_labels": 1000}), folder / "vit")
    (made / "preprocessor_config.json").write_text(VIT_PREPARATION)
    assert run(["page", "vit", "-o", "site", "--runtime", "npm", "-q"]) == 0
    said = json.loads((folder / "site" / "page.json").read_text())
    assert (said["several"], said["labels"]) == (False, list(imagenet_labels()))


def test_the_title_of_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(EXAMPLES / "tiny_llama")
    assert run(["page", ".", "-o", str(folder / "site"), "--runtime", str(folder / "npm"), "-q"]) == 0
    assert json.loads((folder / "site" / "page.json").read_text())["title"] == "tiny_llama"


def test_npm_installs_where_it_is_asked_to(folder, monkeypatch, capsys):
    commands = []

    def npm(words, **options):
        commands.append(words)
        return subprocess.CompletedProcess(words, 1, "", "npm error network\n")

    monkeypatch.setattr(subprocess, "run", npm)
    assert run(["page", "lm.gguf", "-o", "site", "--runtime", "new", "--install"]) == 4
    assert "npm error network" in capsys.readouterr().err
    ((program, verb, *options, package),) = commands
    assert (program, verb, options[-1], package) == ("npm", "install", "new", "@huggingface/transformers")
    assert {"--ignore-scripts", "--no-save"} <= set(options)
