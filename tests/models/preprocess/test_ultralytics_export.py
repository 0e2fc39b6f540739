"""Metadata of ONNX files of ultralytics."""

from candle_convert.models.preprocess.preparation import letterbox
from candle_convert.models.preprocess.stated_preparation import stated_preparation
from candle_convert.models.preprocess.ultralytics_export import export_of
from candle_convert.runtime.ir.graph import Graph

SAID = {
    "author": "Ultralytics",
    "task": "detect",
    "imgsz": "[320, 640]",
    "names": "{0: 'cat', 2: \"dog's\", 1: 'x, y'}",
}


def test_labels_and_size():
    export = export_of(SAID)
    assert export.labels == ("cat", "x, y", "dog's")
    assert export.size == (320, 640)
    assert stated_preparation(Graph(metadata=SAID)) == letterbox(320, 640)


def test_other_metadata():
    assert export_of({**SAID, "author": "someone"}) is None
    assert export_of({"author": "Ultralytics"}) is None
    for size in ("[0, 5]", "[99999, 5]", "640", "__import__('os')"):
        assert export_of({**SAID, "imgsz": size}).size == (640, 640)
    assert export_of({**SAID, "names": "{999999: 'x'}"}).labels == ("LABEL_0",)
