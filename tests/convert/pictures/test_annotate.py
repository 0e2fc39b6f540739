"""Annotated pictures: what is drawn, and where."""

import numpy as np
from candle_convert.convert.pictures.annotate import annotated
from PIL import Image

GREY = Image.new("RGB", (200, 120), (90, 90, 90))


def changed(results):
    """Which pixels of a grey picture are drawn on."""
    return (np.asarray(annotated(GREY, results)) != 90).any(-1)


def box(label, *corners):
    return {"label": label, "score": 0.5, "box": dict(zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True))}


def test_boxes_have_outlines_and_labels():
    drawn = changed([box("cat", 50, 60, 150, 110)])
    assert drawn[60, 50:150].all()
    assert drawn[60:110, 50].all()
    assert not drawn[70:100, 60:140].any()
    assert drawn[45:58, 52:60].any(), "the label is above the box"
    assert not drawn[:40].any()
    outside = changed([box("a long name of a class", 190, 0, 260, 300)])
    assert outside[:20, 100:].any(), "the label stays inside the picture"


def test_labels_have_distinct_colors():
    image = np.asarray(
        annotated(GREY, [box(str(number), 10 * number, 90, 10 * number + 6, 100) for number in range(12)])
    )
    colors = {tuple(image[95, 10 * number]) for number in range(12)}
    assert len(colors) == 12
    pairs = [(one, other) for one in colors for other in colors if one != other]
    assert min(np.abs(np.subtract(one, other, dtype=int)).sum() for one, other in pairs) > 30


def test_masks_are_transparent():
    mask = np.zeros((120, 200), bool)
    mask[80:, 100:] = True
    image = np.asarray(annotated(GREY, [{"label": "sky", "share": 0.2, "mask": mask}]))
    assert (image[100, 150] != 90).any()
    assert (image[90, 40] == 90).all()
    assert (np.abs(image[100, 150].astype(int) - 90) <= 128).all()


def test_skeletons_join_visible_points():
    points = [[10.0 * number, 60.0, 0.9] for number in range(17)]
    points[0][2] = 0.1
    drawn = changed([{**box("person", 0, 100, 199, 119), "keypoints": points}])
    assert drawn[60, 10:160].all()
    assert not drawn[56:64, :5].any()


def test_labels_of_classifiers_are_lines():
    drawn = changed([{"label": "tabby", "score": 0.9}, {"label": "tench", "score": 0.05}])
    assert drawn[:30, :60].any()
    assert not drawn[60:].any()
    assert not changed([]).any()


def test_depth_is_colored():
    depth = np.linspace(0, 1, 200, dtype=np.float32)[None].repeat(120, 0)
    image = np.asarray(annotated(GREY, [{"depth": depth, "least": 0.0, "mean": 0.5, "most": 1.0}])).astype(int)
    light = image.sum(-1)[0]
    assert (np.diff(light[::10]) > 0).all(), "farther is lighter everywhere"
    flat = annotated(GREY, [{"depth": np.ones((4, 5), np.float32)}])
    assert flat.size == (5, 4)
