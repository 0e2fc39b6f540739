"""SummaryWriter writes what TensorBoard reads."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.utils.tensorboard import SummaryWriter


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


def test_bytes_of_a_text(tmp_path):
    """The value that TensorBoard's own writer makes of this text."""
    expected = b"\n\x11note/text_summaryB\r\x08\x07\x12\x04\x12\x02\x08\x01B\x03abcJ\x08\n\x06\n\x04text"
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "abc")
    (path,) = tmp_path.iterdir()
    assert expected in path.read_bytes()
