"""Missing optional packages: every command that needs one says how to install it, and exits with 4."""

import ast
import json
import sys
import tomllib

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.runtime.plugin.optional_package import PACKAGES
from candle_convert.tests.builders.image_checkpoints import image_model, saved
from candle_convert.tests.builders.onnx_files import perceptron
from candle_convert.tests.builders.paths import REPOSITORY

VIT = {
    "image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16,
}  # fmt: skip
PILLOW = "pip install 'candle-convert[image]'"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model of images, images in folders, and no package of any extra."""
    monkeypatch.chdir(tmp_path)
    made = saved(image_model("ViTForImageClassification", **VIT, num_labels=2), tmp_path / "vit")
    (made / "preprocessor_config.json").write_text('{"size": 16, "image_processor_type": "ViTImageProcessor"}')
    for label in "ab":
        (tmp_path / "known" / label).mkdir(parents=True)
        (tmp_path / "known" / label / "x.ppm").write_bytes(b"P6 1 1 255\n" + label.encode() * 3)
    perceptron("net.onnx")
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("PIL", "soundfile", "soxr", "huggingface_hub"):
            monkeypatch.delitem(sys.modules, name)
    for name in ("PIL", "soundfile", "soxr", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, name, None)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "install"),
    [
        (["predict", "vit", "known/a/x.ppm"], PILLOW),
        (["predict", "vit", "known/a", "known/b"], PILLOW),
        (["embed", "vit", "known/a/x.ppm"], PILLOW),
        (["classify", "vit", "known/a/x.ppm", "--against", "known"], PILLOW),
        (["finetune", "vit", "-d", "known", "-o", "out", "--epochs", "1"], PILLOW),
        (["inspect", "hf://owner/repo"], "pip install 'candle-convert[hub]'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_error_is_the_install_command(folder, capsys, words, install):
    assert run(words) == 4
    error = capsys.readouterr().err
    assert install in error
    assert "E-BUG" not in error
    assert error.count("\n") == 1
    assert run([*words, "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["hint"] == install


def test_arrays_as_images_need_pillow(folder):
    with pytest.raises(cc.UnsupportedError, match=r"E-OP-PILLOW.*install 'candle-convert") as caught:
        cc.models.load("vit").predict(np.zeros((16, 16, 3), np.uint8))
    assert "Pillow" in str(caught.value)


def test_extras_are_those_of_the_project():
    """Each optional package is a requirement of the extra that its error names."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, package in PACKAGES.items():
        listed = [requirement.split(">")[0].lower().replace("-", "_") for requirement in extras[package.extra]]
        assert {"PIL": "pillow"}.get(name, name) in listed


def test_a_stray_import_of_an_optional_package_is_no_bug(folder, capsys, monkeypatch):
    """An import that goes around `optional_package` ends in the same error."""

    def fails(*arguments, **options):
        import PIL  # noqa: F401

    monkeypatch.setattr("candle_convert.convert.cli.main.cli.main", fails)
    assert run(["inspect", "net.onnx"]) == 4
    assert PILLOW in capsys.readouterr().err


def test_no_other_install_command_stands_in_the_package():
    """Install commands of extras are made by `optional_package` alone, but for CUDA's several packages."""
    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in REPOSITORY.rglob("*.py")
        if path.relative_to(REPOSITORY).parts[0] in ("runtime", "ops", "formats", "models", "training", "convert", "nn")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "candle-convert[" in node.value
    ]
    assert {line.partition(":")[0] for line in found} == {
        "runtime/plugin/optional_package.py",
        "runtime/cuda/device/device.py",
    }
