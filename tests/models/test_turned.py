"""Layouts of experts that files store the other way: against numpy, there and back, and MXFP4 with its bits."""

import numpy as np
import pytest
from candle_convert.models.layers.turned import Turned, TurnedPart
from candle_convert.ops.quants.schemes import schemes
from candle_convert.runtime.arch import Config
from candle_convert.runtime.scheme import Checkpoint
from candle_convert.runtime.tensor import Tensor

VALUES = np.random.default_rng(0).normal(size=(3, 64, 8)).astype(np.float32)
NONE = Config({})


@pytest.mark.parametrize("alternating", [True, False])
def test_parts_are_taken_and_put_together(alternating):
    whole = Tensor.of(VALUES)
    parts = [TurnedPart(index, alternating=alternating).join([whole], NONE) for index in range(2)]
    for index, part in enumerate(parts):
        wanted = VALUES[:, :, index::2] if alternating else VALUES[:, :, 4 * index : 4 * index + 4]
        np.testing.assert_array_equal(part.numpy(), wanted.swapaxes(1, 2))
    np.testing.assert_array_equal(TurnedPart(0, alternating=alternating).together(parts).numpy(), VALUES)
    back = Turned().split(Turned().join([whole], NONE), NONE, 1)[0]
    assert back is whole
    with pytest.raises(ValueError, match="equal parts"):
        TurnedPart(0, 3).join([whole], NONE)


def test_blocks_stay_blocks():
    random = np.random.default_rng(1)
    blocks, scales = random.integers(0, 256, (3, 8, 2, 16), np.uint8), random.integers(110, 135, (3, 8, 2), np.uint8)
    given = {"up_blocks": Tensor.of(blocks), "up_scales": Tensor.of(scales)}
    whole = schemes()["mxfp4"].unpack(Checkpoint({}, given)).weights["up"]
    assert whole.shape == (3, 64, 8)
    parts = [TurnedPart(index).join([whole], NONE) for index in range(2)]
    for index, part in enumerate(parts):
        assert part.dtype.name == "mxfp4"
        stored = np.frombuffer(part.raw(), np.uint8).reshape(3, 4, 2, 17)
        np.testing.assert_array_equal(stored[..., 0], scales[:, index::2])
        np.testing.assert_array_equal(part.dequantize().numpy(), whole.numpy()[:, :, index::2].swapaxes(1, 2))
    np.testing.assert_array_equal(TurnedPart(0).together(parts).numpy(), whole.numpy())
