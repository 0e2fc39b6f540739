"""Pickled models of ultralytics: read without its classes, with labels and size; pickles that call are refused."""

import pickle

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.tests.builders.image_checkpoints import images
from candle_convert.tests.builders.pickled_yolo import save_checkpoint
from candle_convert.tests.builders.yolov8 import yolov8

LABELS = ["cat", "dog", "it's"]
TOLERANCE = 3e-5


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    model = yolov8()
    path = tmp_path_factory.mktemp("yolo") / "best.pt"
    save_checkpoint(model, path, names=dict(enumerate(LABELS)), yaml={"nc": 3, "backbone": [[-1, 1, "Conv"]]})
    return model, path


def test_weights_and_metadata(case):
    model, path = case
    graph = cc.open(path)
    state = model.state_dict()
    assert set(graph.weights) == set(state)
    assert all(np.array_equal(graph[name].numpy(), value.numpy()) for name, value in state.items())
    assert graph.metadata == {
        "epoch": -1, "ema": None, "date": "2023", "train_args.imgsz": 64, "train_args.task": "detect", "yaml.nc": 3,
        **{f"names.{number}": name for number, name in enumerate(LABELS)},
    }  # fmt: skip
    assert not cc.scan(path).findings


@pytest.mark.parametrize("name", ["best.pt", "m.safetensors", "m.gguf", "m.onnx"])
def test_conversions(case, name, tmp_path):
    model, path = case
    target = path if name == path.name else tmp_path / name
    if target != path:
        cc.convert(path, target)
    pixels = images(1, 64, 64)
    with torch.no_grad():
        expected = model(torch.from_numpy(pixels))
    loaded = cc.models.load(target)
    for key, value in loaded(pixel_values=pixels).items():
        assert np.abs(value - expected[key].numpy()).max() <= TOLERANCE * np.abs(expected[key].numpy()).max()
    picture = np.random.default_rng(0).integers(0, 255, (50, 80, 3), np.uint8)
    found = loaded.predict(picture, threshold=0.1)
    assert found
    assert {each["label"] for each in found} <= set(LABELS)


def test_metadata_of_the_export(case, tmp_path):
    cc.convert(case[1], tmp_path / "m.onnx")
    said = onnxruntime.InferenceSession(tmp_path / "m.onnx").get_modelmeta().custom_metadata_map
    assert said["names"] == "{0: 'cat', 1: 'dog', 2: \"it's\"}"
    assert (said["task"], said["imgsz"]) == ("detect", "[64, 64]")


def test_the_moving_average_is_taken_before_the_model(tmp_path):
    model, average = yolov8(), yolov8()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    save_checkpoint(model, tmp_path / "last.pt", average)
    found, expected = cc.load_file(tmp_path / "last.pt"), average.state_dict()
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], value.numpy()) for name, value in expected.items())


class _Named:
    """Pickles as a call of a name with arguments."""

    def __init__(self, module, name, *arguments):
        self.module, self.name, self.arguments = module, name, arguments

    def bytes(self):
        argument = pickle.dumps(self.arguments, 2)[2:-1]
        return b"\x80\x02c" + f"{self.module}\n{self.name}\n".encode() + argument + b"R."


@pytest.mark.parametrize(
    "call",
    [
        _Named("ultralytics.nn.tasks", "attempt_load_weights", "http://x/y.pt"),
        _Named("ultralytics.nn.tasks", "torch.load", "x"),
        _Named("ultralytics.nn.tasks", "DetectionModel", "http://x/y.yaml"),
        _Named("ultralytics.nn.modules.block", "TorchVision", "x"),
        _Named("torch.nn.modules.linear", "Linear", 10**9, 10**9),
        _Named("torch.nn.modules.module", "register_module_forward_hook", "x"),
        _Named("ultralytics.utils.checks", "check_requirements", "evil"),
    ],
    ids=lambda call: call.name,
)
def test_calls_are_refused(call, tmp_path):
    (tmp_path / "m.pt").write_bytes(call.bytes())
    with pytest.raises(cc.UnsafeFileError) as caught:
        cc.open(tmp_path / "m.pt")
    assert caught.value.code == "E-PKL-GLOBAL"
    assert any(finding.severity == "danger" for finding in cc.scan(tmp_path / "m.pt").findings)
