"""Run lengths of masks as transformers encodes them, and small regions as scikit-image removes them."""

import numpy as np
import pytest
import torch
from candle_convert.models.postprocess.connected_regions import regions
from candle_convert.models.postprocess.run_lengths import run_lengths
from candle_convert.models.postprocess.small_regions import without_small_regions

RNG = np.random.default_rng(7)
MASKS = [
    *(RNG.random((23, 31)) < share for share in (0.1, 0.5, 0.9)),
    np.zeros((4, 5), bool),
    np.ones((4, 5), bool),
    np.kron(RNG.random((5, 6)) < 0.4, np.ones((7, 9))).astype(bool),
]


@pytest.mark.parametrize("mask", MASKS, ids=range(len(MASKS)))
def test_run_lengths(mask):
    from transformers.models.sam.image_processing_pil_sam import _mask_to_rle, _rle_to_mask

    found = run_lengths(mask)
    (expected,) = _mask_to_rle(torch.from_numpy(mask)[None])
    assert found.to_coco() == expected
    assert (np.asarray(found) == _rle_to_mask(expected)).all()
    assert found.area == mask.sum()


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("mask", MASKS, ids=range(len(MASKS)))
def test_regions(mask, corners):
    from skimage.measure import label, regionprops

    expected = label(mask, connectivity=2 if corners else 1)
    found, areas = regions(mask, corners=corners)
    firsts = [np.flatnonzero(found == number)[0] for number in range(1, len(areas) + 1)]
    assert firsts == sorted(firsts)
    assert sorted(areas) == sorted(each.area for each in regionprops(expected))
    assert len(np.unique(np.stack([found, expected]).reshape(2, -1), axis=1).T) == expected.max() + (not mask.all())


@pytest.mark.parametrize("area", [2, 6, 70])
@pytest.mark.parametrize("mask", MASKS, ids=range(len(MASKS)))
def test_small_regions(mask, area):
    from skimage.measure import label

    holes = label(~mask, connectivity=2)
    small = np.flatnonzero(np.bincount(holes.ravel(), minlength=1) < area)
    filled = mask | np.isin(holes, small[small > 0])
    islands = label(filled, connectivity=2)
    sizes = np.bincount(islands.ravel(), minlength=1)[1:]
    large = np.flatnonzero(sizes >= area) + 1
    found, changed = without_small_regions(mask, area)
    if len(large) or not len(sizes):
        assert (found == np.isin(islands, large)).all()
        assert changed == (found != mask).any()
    else:
        assert found.sum() == sizes.max()
        assert len(np.unique(islands[found])) == 1
        assert changed
