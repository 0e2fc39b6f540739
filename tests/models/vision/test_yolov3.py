"""YOLO v3 against PyTorch-YOLOv3: from darknet's files and candle's names, through GGUF, exported, and hostile .cfg."""

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
from candle_convert.tests.builders.darknet_results import CFG, SIZES, recorded, weights
from candle_convert.tests.builders.image_checkpoints import images

TOLERANCE = 3e-5
CANDLE = {"scales": "weight", "biases": "bias", "rolling_mean": "running_mean", "rolling_variance": "running_var"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("darknet")
    (folder / "tiny.cfg").write_text(CFG)
    (folder / "tiny.names").write_text("cat\ndog\nbird\n")
    (folder / "tiny.weights").write_bytes(weights())
    return folder / "tiny.weights"


def _compare(found, number):
    expected = recorded()[number]
    assert found.keys() == {"boxes_xywh", "objectness_and_scores"}
    for name, part in (("boxes_xywh", expected[..., :4]), ("objectness_and_scores", expected[..., 4:])):
        assert np.abs(found[name] - part).max() <= TOLERANCE * np.abs(part).max(), name


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_outputs(path, number):
    _compare(cc.models.load(path)(pixel_values=images(*SIZES[number])), number)


@pytest.mark.parametrize("edge", ["width", "height"])
@pytest.mark.parametrize("value", ["2000000", "4097", "0", "-1"])
def test_edges_beyond_any_model_are_refused(edge, value, path, tmp_path):
    """A line of a .cfg sizes the pictures: one of 2,000,000 pixels in a row takes 6 GB."""
    lines = [line for line in CFG.splitlines() if not line.replace(" ", "").startswith(f"{edge}=")]
    place = next(number for number, line in enumerate(lines) if line.startswith("[net")) + 1
    (tmp_path / "tiny.cfg").write_text("\n".join([*lines[:place], f"{edge}={value}", *lines[place:]]))
    (tmp_path / "tiny.weights").write_bytes(path.read_bytes())
    with pytest.raises(cc.FormatError) as caught:
        cc.models.load(tmp_path / "tiny.weights")
    assert caught.value.code == "E-DARKNET-CFG"


def test_the_folder_of_the_weights(path):
    _compare(cc.models.load(path.parent)(pixel_values=images(*SIZES[0])), 0)


def test_other_names(path, tmp_path):
    renamed = {}
    held = cc.load_file(path)
    for name, value in held.items():
        _, i, part = name.split(".")
        module = "batch_norm" if f"layers.{i}.scales" in held and part != "weights" else "conv"
        renamed[f"{i}.{module}_{i}.{CANDLE[part] if part != 'weights' else 'weight'}"] = value
    renamed["11.yolo_11.anchors"] = np.zeros((2, 2), np.float32)
    renamed["0.batch_norm_0.num_batches_tracked"] = np.array(0)
    cc.save_file(renamed, tmp_path / "m.safetensors")
    with pytest.raises(cc.UnsupportedError):
        cc.models.load(tmp_path / "m.safetensors")
    (tmp_path / "m.cfg").write_text(CFG)
    _compare(cc.models.load(tmp_path / "m.safetensors")(pixel_values=images(*SIZES[0])), 0)


@pytest.mark.parametrize("name", ["m.gguf", "m.safetensors", "m.pth"])
def test_other_formats(path, name, tmp_path):
    cc.convert(path, tmp_path / name)
    model = cc.models.load(tmp_path / name)
    _compare(model(pixel_values=images(*SIZES[1])), 1)
    assert model.options.config.label_names == ["cat", "dog", "bird"]


def test_export(path, tmp_path):
    cc.convert(path, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = [output.name for output in session.get_outputs()]
    for number, size in enumerate(SIZES):
        _compare(dict(zip(names, session.run(None, {"pixel_values": images(*size)}), strict=True)), number)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mask=2,3", "mask=2,9"),
        ("mask=2,3", "mask=1,2,3"),
        ("anchors=10,13, 16", "anchors=10,x, 16"),
        ("classes=3", "classes=4"),
        ("group_id=1", "group_id=2"),
        ("from=-3", "from=-4"),
        ("stride=2\n\n[route]", "stride=64\n\n[route]"),
        ("activation=mish", "activation=gelu"),
        ("[maxpool]\nsize=3", "[maxpool]\nsize=3\npadding=9"),
        ("[maxpool]", "[reorg]"),
        ("[yolo]", "[region]"),
        ("[shortcut]", "[dropout]\n" * 2000 + "[shortcut]"),
    ],
)
def test_hostile(path, old, new, tmp_path):
    cc.convert(path, tmp_path / "m.safetensors")
    graph = cc.open(tmp_path / "m.safetensors")
    assert old in CFG
    graph.metadata["darknet.cfg"] = CFG.replace(old, new)
    with pytest.raises(cc.Error) as caught:
        cc.models.load(graph)
    assert caught.value.code.startswith(("E-DARKNET", "E-ARCH", "E-SHAPE"))


def test_pictures(path, tmp_path):
    """The native model and its export see pictures through the same letterbox, and name the labels."""
    picture = np.random.default_rng(0).integers(0, 255, (50, 80, 3), np.uint8)
    cc.convert(path, tmp_path / "m.onnx")
    native, exported = (cc.models.load(each) for each in (path, tmp_path / "m.onnx"))
    found = native.predict(picture, threshold=0.3)
    assert found
    assert {each["label"] for each in found} <= {"cat", "dog", "bird"}
    again = exported.predict(picture, threshold=0.3)
    assert [each["label"] for each in again] == [each["label"] for each in found]
    for one, other in zip(found, again, strict=True):
        assert other["box"] == pytest.approx(one["box"], abs=0.02)
