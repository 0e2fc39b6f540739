"""SummaryWriter writes what TensorBoard reads."""

import io

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.utils.tensorboard import SummaryWriter
from PIL import Image


def test_events_by_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    values = np.random.default_rng(0).normal(size=100)
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss/train", cc.tensor(0.5), 3)
        writer.add_scalars("both", {"a": 1, "b": 2}, 1)
        writer.add_histogram("weights", cc.tensor(values), 2)
        writer.add_text("note", "hello", 4)
        with pytest.raises(cc.UsageError, match="histogram"):
            writer.add_histogram("weights", np.array([np.nan]))
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(each.step, each.value) for each in events.Scalars("loss/train")] == [(3, 0.5)]
    found = events.Histograms("weights")[0].histogram_value
    assert (found.min, found.max, found.num) == (values.min(), values.max(), 100)
    assert sum(found.bucket) == 100
    assert len(found.bucket) == len(found.bucket_limit) == 64
    assert events.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"hello"]
    other = accumulator.EventAccumulator(str(tmp_path / "both_b"))
    other.Reload()
    assert [each.value for each in other.Scalars("both")] == [2]


@pytest.mark.parametrize(
    ("layout", "shape"), [("CHW", (3, 5, 7)), ("CHW", (1, 5, 7)), ("HWC", (5, 7, 4)), ("HW", (5, 7))]
)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_images_are_those_of_torchs_writer(layout, shape, dtype, tmp_path):
    """The pixels that torch's `make_image` gives: bytes as they are, floats times 255, one channel as three."""
    random = np.random.default_rng(0)
    array = random.integers(0, 256, shape, np.uint8) if dtype == "uint8" else random.uniform(-0.2, 1.2, shape)
    array = array.astype(dtype)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("picture", cc.from_numpy(array), 3, dataformats=layout)
    content = next(tmp_path.iterdir()).read_bytes()
    start = content.index(b"\x89PNG")
    picture = np.asarray(Image.open(io.BytesIO(content[start:])))
    pixels = {"CHW": (1, 2, 0), "HWC": (0, 1, 2)}.get(layout)
    expected = array[..., None] if pixels is None else array.transpose(pixels)
    expected = expected if dtype == "uint8" else np.clip(expected * np.float32(255), 0, 255).astype(np.uint8)
    expected = expected.repeat(3, 2) if expected.shape[2] == 1 else expected
    np.testing.assert_array_equal(picture, expected)
    assert bytes([0x08, 5, 0x10, 7, 0x18, expected.shape[2], 0x22]) in content[:start]
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    (found,) = events.Images("picture")
    assert (found.step, found.height, found.width) == (3, 5, 7)
    assert content[start:].startswith(found.encoded_image_string)


def test_figures_are_images(tmp_path):
    class Figure:
        """Of matplotlib's class, what is used."""

        def savefig(self, file, format, dpi):
            assert (format, dpi) == ("png", "figure")
            Image.new("RGBA", (9, 4)).save(file, "PNG")

    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("curve", Figure(), 1)
        with pytest.raises(cc.UsageError, match="dims CHW"):
            writer.add_image("picture", np.zeros((2, 2)))
        with pytest.raises(cc.UsageError, match="is empty"):
            writer.add_image("picture", np.zeros((3, 0, 2)))
        with pytest.raises(cc.UsageError, match="2 channels"):
            writer.add_image("picture", np.zeros((2, 2, 2)))
    assert bytes([0x08, 4, 0x10, 9, 0x18, 4, 0x22]) in next(tmp_path.iterdir()).read_bytes()


def test_bytes_of_a_text(tmp_path):
    """The value that TensorBoard's own writer makes of this text."""
    expected = b"\n\x11note/text_summaryB\r\x08\x07\x12\x04\x12\x02\x08\x01B\x03abcJ\x08\n\x06\n\x04text"
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "abc")
    (path,) = tmp_path.iterdir()
    assert expected in path.read_bytes()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_several_images_are_a_grid_of_eight_columns(layout, tmp_path):
    """Each image stands where torch's `make_grid` puts it."""
    images = np.random.default_rng(0).integers(0, 256, (11, 3, 4, 5), np.uint8)
    with SummaryWriter(tmp_path) as writer:
        writer.add_images("all", images if layout == "NCHW" else images.transpose(0, 2, 3, 1), dataformats=layout)
        with pytest.raises(cc.UsageError, match="do not have the dims NCHW"):
            writer.add_images("all", images[0])
    content = next(tmp_path.iterdir()).read_bytes()
    found = np.asarray(Image.open(io.BytesIO(content[content.index(b"\x89PNG") :])))
    assert found.shape == (8, 40, 3)
    for number, each in enumerate(images):
        top, left = number // 8 * 4, number % 8 * 5
        np.testing.assert_array_equal(found[top : top + 4, left : left + 5], each.transpose(1, 2, 0))
    assert not found[4:, 15:].any()
