"""interpolate of u8 images: torch's, whose weights are fixed-point numbers, within 1; other integers are refused."""

import candle_convert as cc
import numpy as np
import pytest
import torch

IMAGE = np.random.default_rng(0).integers(0, 256, (2, 3, 7, 9)).astype(np.uint8)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("aligned", [True, False])
def test_bytes(mode, aligned):
    options = {"size": (5, 12), "mode": mode, "align_corners": aligned}
    ours = cc.nn.functional.interpolate(cc.tensor(IMAGE), **options)
    assert ours.dtype is cc.uint8
    theirs = torch.nn.functional.interpolate(torch.tensor(IMAGE), **options).numpy()
    assert np.abs(ours.numpy().astype(int) - theirs).max() <= 1


def test_other_integers():
    with pytest.raises(cc.UsageError, match="i64 is not defined"):
        cc.nn.functional.interpolate(cc.tensor(IMAGE.astype(np.int64)), (5, 12), mode="bilinear")
