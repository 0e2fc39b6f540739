"""Folders of models whose parts have files of their own."""

import dataclasses

import candle_convert as cc
import pytest
from candle_convert.convert.open import model_files
from candle_convert.runtime.contract.architecture import Architecture, Part

PIPELINE = Architecture(
    "pipeline", "Pipeline", (), (), (), (), (),
    parts={"denoiser": Part(None, ""), "decoder": Part(None, ""), "checker": Part(None, "", optional=True)},
)  # fmt: skip


LARGER = dataclasses.replace(PIPELINE, name="larger", parts={**PIPELINE.parts, "refiner": Part(None, "")})


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(model_files, "_candidates", lambda names, kind=None: [LARGER, PIPELINE])


def folder(path, *parts):
    for part in parts:
        (path / part).mkdir()
        (path / part / "model.safetensors").touch()
    return path


@pytest.mark.parametrize("parts", [("denoiser", "decoder"), ("denoiser", "decoder", "checker")])
def test_a_folder_may_lack_parts_that_are_optional(parts, tmp_path):
    found = model_files.models_of(folder(tmp_path, *parts))
    assert found == {part: tmp_path / part for part in parts}
    assert model_files.made_of(parts) is PIPELINE


def test_a_folder_without_a_part_is_refused(tmp_path):
    with pytest.raises(cc.Error, match="without its decoder, refiner"):
        model_files.models_of(folder(tmp_path, "denoiser", "checker"))
    assert model_files.made_of(("denoiser", "checker")) is None


def test_other_names_are_no_model():
    assert model_files.made_of(("denoiser", "decoder", "tokenizer")) is None
