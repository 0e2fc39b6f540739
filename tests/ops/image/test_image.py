"""Image operators: old opsets, modes and corner cases against onnxruntime, the reference evaluator and Pillow."""

import io

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.ops.image.affine_grid import affine_grid
from candle_convert.ops.image.grid_sample import grid_sample
from candle_convert.ops.image.image_decoder import image_decoder
from candle_convert.ops.image.resize import resize
from candle_convert.ops.image.roi_align import roi_align
from candle_convert.runtime.base.errors import FormatError, LimitError
from candle_convert.tests.oracles.onnxruntime import compared, ours, theirs
from onnx import TensorProto, helper

RNG = np.random.default_rng(9)
IMAGE = RNG.normal(size=(2, 3, 7, 10)).astype(np.float32)
NO_ROI = np.zeros(0, np.float32)
POSITIONS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
SCALES = [(2, 2), (1.5, 0.5), (0.6, 0.7), (0.15, 3.2), (1, 1.7)]


@pytest.mark.parametrize("opset", [11, 13, 18, 19])
@pytest.mark.parametrize("place", [*POSITIONS, "half_pixel_symmetric"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_scales(opset, place, scale):
    if place == "half_pixel_symmetric" and opset < 19:
        return
    scales = np.array([1, 1, *scale], np.float32)
    fractional = any(side * length % 1 for side, length in zip(scale, IMAGE.shape[2:], strict=True))
    if place == "align_corners" and fractional:
        return  # onnxruntime counts whole elements where the standard counts the fraction too
    if place == "half_pixel_symmetric" and scale == (0.6, 0.7):
        return  # the first position is half way between two elements, up to rounding
    for near in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
        compared("Resize", IMAGE, NO_ROI, scales, opset=opset, coordinate_transformation_mode=place, nearest_mode=near)
    for mode, exclude in [("linear", 0), ("cubic", 0), ("cubic", 1)]:
        compared(
            "Resize",
            IMAGE,
            NO_ROI,
            scales,
            opset=opset,
            coordinate_transformation_mode=place,
            mode=mode,
            exclude_outside=exclude,
            atol=1e-5,
        )


@pytest.mark.parametrize("place", POSITIONS)
@pytest.mark.parametrize("size", [(14, 5), (1, 1), (3, 20), (7, 10)], ids=str)
def test_sizes(place, size):
    sizes = np.array([2, 3, *size], np.int64)
    for mode in ["nearest", "linear", "cubic"]:
        compared(
            "Resize", IMAGE, NO_ROI, NO_ROI, sizes, opset=11, coordinate_transformation_mode=place, mode=mode, atol=1e-5
        )
        compared(
            "Resize", IMAGE, None, None, sizes, opset=18, coordinate_transformation_mode=place, mode=mode, atol=1e-5
        )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("scale", [(0.4, 0.7), (0.3, 1.6), (2, 2)], ids=str)
def test_antialias(mode, exclude, scale):
    compared(
        "Resize",
        IMAGE,
        None,
        np.array(scale, np.float32),
        opset=18,
        mode=mode,
        antialias=1,
        exclude_outside=exclude,
        axes=[2, 3],
        atol=1e-5,
    )


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
@pytest.mark.parametrize("axes", [[2, 3], [3, 2]])
def test_aspect_ratio(policy, axes):
    for mode in ["nearest", "linear"]:
        compared(
            "Resize",
            IMAGE,
            None,
            None,
            np.array([9, 8], np.int64),
            opset=18,
            axes=axes,
            keep_aspect_ratio_policy=policy,
            mode=mode,
        )
    negative = resize.compute(
        IMAGE, None, None, np.array([9, 8]), axes=[axis - 4 for axis in axes], keep_aspect_ratio_policy=policy
    )
    assert (
        negative == resize.compute(IMAGE, None, None, np.array([9, 8]), axes=axes, keep_aspect_ratio_policy=policy)
    ).all()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_region_of_interest(mode):
    roi = np.array([0, 0, 0.1, -0.2, 1, 1, 0.8, 1.3], np.float32)
    for size in [(5, 6), (1, 1), (9, 21)]:
        compared(
            "Resize",
            IMAGE,
            roi,
            NO_ROI,
            np.array([2, 3, *size], np.int64),
            opset=11,
            mode=mode,
            extrapolation_value=7.5,
            coordinate_transformation_mode="tf_crop_and_resize",
            atol=1e-5,
        )


@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.4, 0.6), (1, 1, 2.5, 0.6), (1, 1, 0.25, 1)], ids=str)
def test_opset_10(scales):
    for mode in ["nearest", "linear"]:
        compared("Resize", IMAGE, np.array(scales, np.float32), opset=10, mode=mode)


def upsampling(opset, attributes, inputs):
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node("Upsample", names, ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, item.shape)
            for name, item in zip(names, inputs, strict=True)
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6), dict(
        zip(names, inputs, strict=True)
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode):
    scales = [1.0, 1.0, 2.0, 1.5]
    for opset, attributes, inputs in [(7, {"scales": scales}, [IMAGE]), (9, {}, [IMAGE, np.array(scales, np.float32)])]:
        made, feeds = upsampling(opset, {"mode": mode, **attributes}, inputs)
        np.testing.assert_allclose(ours(made, feeds)[0], theirs(made, feeds)[0], rtol=1e-5, atol=1e-6)
    first, feeds = upsampling(
        1, {"mode": {"linear": "bilinear"}.get(mode, mode), "height_scale": 2.0, "width_scale": 1.5}, [IMAGE]
    )
    np.testing.assert_array_equal(ours(first, feeds)[0], ours(made, {**feeds, "x1": np.array(scales, np.float32)})[0])


@pytest.mark.parametrize("near", ["floor", "round_prefer_floor", "ceil"])
def test_pixels_of_tensorflow(near):
    compared(
        "Resize",
        IMAGE,
        NO_ROI,
        np.array([1, 1, 1.5, 0.7], np.float32),
        opset=11,
        nearest_mode=near,
        coordinate_transformation_mode="tf_half_pixel_for_nn",
    )


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32])
def test_element_types(kind):
    x = RNG.integers(0, 100, (1, 2, 5, 6)).astype(kind)
    compared("Resize", x, None, np.array([1, 1, 2, 1.5], np.float32), opset=19)
    y = resize.compute(x, None, np.array([1, 1, 2, 1.5], np.float32), mode="cubic")
    real = resize.compute(x.astype(np.float64), None, np.array([1, 1, 2, 1.5], np.float32), mode="cubic")
    assert np.abs(y - np.clip(real, np.iinfo(kind).min, np.iinfo(kind).max)).max() <= 0.5


def test_nearest_moves_anything():
    words = np.array([["a", "b"], ["c", "d"]], object)
    assert resize.compute(words, None, None, np.array([2, 3])).tolist() == [["a", "a", "b"], ["c", "c", "d"]]
    assert resize.compute(np.ones((2, 2), np.complex64) * 1j, None, np.array([1, 2], np.float32)).shape == (2, 4)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((IMAGE,), {}),
        ((IMAGE, None, np.ones(3, np.float32)), {}),
        ((IMAGE, None, np.array([1, 1, 0, 1], np.float32)), {}),
        ((IMAGE, None, np.ones(4, np.float32)), {"mode": "quintic"}),
        ((IMAGE, None, np.ones(4, np.float32) * 2), {"nearest_mode": "up"}),
        ((IMAGE, None, np.ones(4, np.float32) * 2), {"coordinate_transformation_mode": "best"}),
        ((IMAGE, None, np.ones(2, np.float32)), {"axes": [2, 2]}),
        ((IMAGE, None, np.ones(2, np.float32)), {"axes": [2, 7]}),
        ((IMAGE[:, :0], None, None, np.array([1, 1, 1, 1])), {}),
        ((IMAGE, None, None, np.array([1, 1, -1, 1])), {}),
        ((IMAGE, None, None, np.array([1, 1, 1, 1])), {"keep_aspect_ratio_policy": "mostly"}),
    ],
)
def test_contradictions_are_refused(inputs, attributes):
    with pytest.raises(FormatError):
        resize.compute(*inputs, **attributes)


def test_sizes_beyond_the_limit_are_refused():
    with pytest.raises(LimitError), cc.limits(memory="1MB"):
        resize.compute(IMAGE, None, None, np.array([1, 1, 40000, 40000]))


GRID = RNG.uniform(-1.7, 1.7, (2, 6, 5, 2)).astype(np.float32)
VOLUME, FLOW = (
    RNG.normal(size=(2, 2, 3, 5, 4)).astype(np.float32),
    RNG.uniform(-1.6, 1.6, (2, 2, 4, 3, 3)).astype(np.float32),
)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_sampling_by_a_grid(padding, corners):
    attributes = {"padding_mode": padding, "align_corners": corners, "rtol": 1e-4, "atol": 1e-5}
    for old, new in [("bilinear", "linear"), ("nearest", "nearest"), ("bicubic", "cubic")]:
        compared("GridSample", IMAGE, GRID, opset=16, mode=old, **attributes)
        compared("GridSample", IMAGE, GRID, opset=20, mode=new, **attributes)
    for mode in ["linear", "nearest"]:
        compared("GridSample", VOLUME, FLOW, opset=20, mode=mode, **attributes)
    far = np.array([[[[9.0, -7.3], [1, -1], [-1, 1], [0.5, 3.2]]]] * 2, np.float32)
    compared("GridSample", IMAGE, far, opset=20, mode="linear", **attributes)


def test_sampling_anything():
    words = np.array([[[["a", "b"], ["c", "d"]]]], object)
    grid = np.array([[[[-0.5, -0.5], [0.5, 0.5], [3, 3]]]], np.float32)
    assert grid_sample.compute(words, grid, mode="nearest").tolist() == [[[["a", "d", ""]]]]
    assert grid_sample.compute(
        np.array([[[[0, 10], [20, 31]]]], np.uint8), np.zeros((1, 1, 1, 2), np.float32)
    ).tolist() == [[[[15]]]]
    spoiled = np.array([[[[np.nan, 0], [np.inf, -np.inf]]]], np.float32)
    for padding in ["zeros", "border", "reflection"]:
        assert np.isfinite(grid_sample.compute(IMAGE[:1], spoiled, padding_mode=padding)).all()
    with pytest.raises(FormatError):
        grid_sample.compute(IMAGE, FLOW)


@pytest.mark.parametrize("corners", [0, 1])
def test_affine_grid(corners):
    for rank, size in [(2, [2, 3, 5, 4]), (3, [2, 1, 3, 5, 4])]:
        theta = RNG.normal(size=(2, rank, rank + 1)).astype(np.float32)
        compared("AffineGrid", theta, np.array(size), opset=20, align_corners=corners)
    with pytest.raises(FormatError):
        affine_grid.compute(theta, np.array([2, 3, 5, 4]))


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 3])
def test_regions(mode, ratio):
    corners = RNG.uniform(-3, 7, (6, 2))
    upright = np.hstack([corners, corners + RNG.uniform(0.1, 9, (6, 2))])
    rois = np.concatenate([upright, [[2, 2, 2, 2], [5, 5, 1, 1], [-9, -9, -5, -5], [0, 0, 10, 7]]]).astype(np.float32)
    which = RNG.integers(0, 2, len(rois))
    attributes = {
        "mode": mode,
        "sampling_ratio": ratio,
        "output_height": 3,
        "output_width": 2,
        "spatial_scale": 0.9,
        "rtol": 1e-4,
        "atol": 1e-5,
    }
    compared("RoiAlign", IMAGE, rois, which, opset=10, **attributes)
    for place in ["half_pixel", "output_half_pixel"]:
        compared("RoiAlign", IMAGE, rois[:6], which[:6], opset=16, coordinate_transformation_mode=place, **attributes)
    rotated = roi_align.compute(
        IMAGE, rois[7:8], which[:1], output_height=3, output_width=2, sampling_ratio=0, mode=mode
    )
    assert (rotated == 0).all()


@pytest.mark.parametrize(
    ("rois", "which"), [([[0, 0, np.nan, 1]], [0]), ([[0, 0, 1, 1]], [2]), ([[0, 0, 1, 1]], [-1]), ([[0, 0, 1]], [0])]
)
def test_regions_that_do_not_exist_are_refused(rois, which):
    with pytest.raises(FormatError):
        roi_align.compute(IMAGE, np.array(rois, np.float32), np.array(which))


def test_a_region_with_too_many_samples_is_refused():
    with pytest.raises(LimitError):
        roi_align.compute(IMAGE, np.array([[0, 0, 3e12, 1]], np.float32), np.array([0]))


@pytest.mark.parametrize("opset", [10, 11])
@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6, 1.0])
def test_boxes(opset, centred, threshold):
    boxes, scores = (
        RNG.uniform(0, 6, (2, 40, 4)).astype(np.float32),
        np.round(RNG.uniform(0, 1, (2, 3, 40)), 1).astype(np.float32),
    )
    for most in [0, 1, 100]:
        compared(
            "NonMaxSuppression",
            boxes,
            scores,
            np.array([most]),
            np.array([threshold], np.float32),
            np.array([0.2], np.float32),
            opset=opset,
            center_point_box=centred,
        )
    compared("NonMaxSuppression", boxes, scores, np.array([9]), opset=opset, center_point_box=centred)


def picture(name, mode="RGB", **options):
    from PIL import Image

    pixels = RNG.integers(0, 256, (9, 13, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, name, **options)
    return np.frombuffer(stream.getvalue(), np.uint8)


@pytest.mark.parametrize("name", ["BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM"])
def test_pictures(name):
    from PIL import Image

    stream = picture(name)
    expected = np.asarray(Image.open(io.BytesIO(stream.tobytes())).convert("RGB"))
    assert (image_decoder.compute(stream) == expected).all()
    assert (image_decoder.compute(stream, pixel_format="BGR") == expected[..., ::-1]).all()
    assert image_decoder.compute(stream, pixel_format="Grayscale").shape == (9, 13, 1)


def test_pictures_of_other_modes():
    assert image_decoder.compute(picture("PNG", "P")).shape == (9, 13, 3)
    assert image_decoder.compute(picture("PNG", "LA")).shape == (9, 13, 3)
    deep = np.array([[0, 255 << 8], [128 << 8, 7 << 8]], ">u2")
    stream = np.frombuffer(b"P5 2 2 65535\n" + deep.tobytes(), np.uint8)
    assert image_decoder.compute(stream, pixel_format="Grayscale")[..., 0].tolist() == [[0, 255], [128, 7]]


def test_streams_that_are_no_picture():
    whole = picture("PNG")
    cut = [whole[:30].tobytes(), whole[: len(whole) // 2].tobytes(), picture("JPEG")[:200].tobytes()]
    for stream in [b"", b"no picture", b"GIF89a" + bytes(90), *cut]:
        assert image_decoder.compute(np.frombuffer(stream, np.uint8)).shape == (0, 0, 3)
    with pytest.raises(FormatError):
        image_decoder.compute(whole, pixel_format="CMYK")


def test_decompression_bombs_are_refused():
    stream = np.frombuffer(b"P6 60000 60000 255\n" + bytes(100), np.uint8)
    with pytest.raises(LimitError):
        image_decoder.compute(stream)
    with pytest.raises(LimitError), cc.limits(memory="100B"):
        image_decoder.compute(picture("PNG"))
