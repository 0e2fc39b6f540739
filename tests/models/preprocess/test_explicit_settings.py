"""Settings that exports write: the defaults of each class are those of transformers."""

import json

import candle_convert as cc
import pytest
import transformers
from candle_convert.models.preprocess.explicit_settings import SOUNDS, explicit_settings
from candle_convert.models.preprocess.image_processor import KINDS, preparation_of
from candle_convert.tests.builders.image_checkpoints import VIT, image_model, saved

PICTURES = [name for name in KINDS if hasattr(transformers, f"{name}ImageProcessorPil")]
OTHERS = {"do_convert_annotations", "do_convert_rgb", "do_reduce_labels", "format", "mask_pad_size", "mask_size"}
"""Settings of inputs other than pictures, and ones that readers have on where files are silent."""


def plain(value):
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(name):
    want = getattr(transformers, f"{name}ImageProcessorPil")().to_dict()
    kind = f"{name}ImageProcessor"
    found = plain(explicit_settings({"image_processor_type": kind}))
    told = {key for key, value in want.items() if value not in (None, False)} - OTHERS - {"image_processor_type"}
    assert told <= found.keys()
    assert {key: found[key] for key in told} == {key: plain(want[key]) for key in told}
    assert not any(found[key] for key, value in want.items() if value is False and key in found)
    older = explicit_settings({"feature_extractor_type": f"{name}FeatureExtractor", "size": 96})
    assert isinstance(older["size"], dict)


@pytest.mark.parametrize("name", SOUNDS)
def test_sounds(name):
    want = getattr(transformers, name)().to_dict()
    found = explicit_settings({"feature_extractor_type": name})
    assert found == {key: want[key] for key in found}
    halved = explicit_settings({"feature_extractor_type": name, "sampling_rate": 8000})
    again = getattr(transformers, name)(sampling_rate=8000).to_dict()
    assert halved == {key: again[key] for key in halved}


@pytest.mark.parametrize("size", [32, {"height": 32, "width": 32}])
def test_exports_state_what_files_leave_out(size, tmp_path):
    saved(image_model("ViTForImageClassification", **VIT), tmp_path / "model")
    file = "preprocessor_config.json"
    stated = {"image_processor_type": "ViTImageProcessor", "size": size, "own_key": [1]}
    (tmp_path / "model" / file).write_text(json.dumps(stated))
    cc.convert(tmp_path / "model", tmp_path / "out", to="onnx")
    written = json.loads((tmp_path / "out" / file).read_text())
    assert written["own_key"] == [1]
    assert written["size"] == {"height": 32, "width": 32}
    assert (written["do_rescale"], written["do_normalize"], written["image_std"]) == (True, True, [0.5] * 3)
    assert preparation_of(written) == preparation_of(stated)


@pytest.mark.parametrize("text", ["{", "[1]", '{"image_processor_type": "OtherImageProcessor"}', '{"size": "large"}'])
def test_files_that_are_not_understood_are_copied(text, tmp_path):
    saved(image_model("ViTForImageClassification", **VIT), tmp_path / "model")
    (tmp_path / "model" / "preprocessor_config.json").write_text(text)
    cc.convert(tmp_path / "model", tmp_path / "out", to="onnx")
    assert (tmp_path / "out" / "preprocessor_config.json").read_text() == text
