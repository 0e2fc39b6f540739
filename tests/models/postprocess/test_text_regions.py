"""Regions of text: as CRAFT finds them with OpenCV, recorded."""

import numpy as np
import pytest
from candle_convert.models.postprocess.text_regions import Thresholds, components, text_regions
from scipy import ndimage

RECORDED = [
    [
        [[58.0, 9.0], [69.0, 9.0], [69.0, 27.0], [58.0, 27.0]],
        [[5.0, 7.0], [20.0, 7.0], [20.0, 20.0], [5.0, 20.0]],
        [[24.0, 9.0], [35.0, 9.0], [35.0, 13.0], [24.0, 13.0]],
        [[15.78, 12.92], [41.64, 22.62], [36.14, 37.3], [10.27, 27.6]],
        [[30.0, 34.0], [39.0, 34.0], [39.0, 39.0], [30.0, 39.0]],
    ],
    [
        [[0.0, 0.0], [17.0, 0.0], [17.0, 13.0], [-0.0, 13.0]],
        [[10.0, 11.0], [21.0, 0.0], [25.5, 4.5], [14.5, 15.5]],
        [[60.0, 15.0], [69.0, 15.0], [69.0, 25.0], [60.0, 25.0]],
        [[7.8, 25.6], [23.8, 17.6], [27.0, 24.0], [11.0, 32.0]],
        [[27.0, 29.0], [32.0, 29.0], [32.0, 39.0], [27.0, 39.0]],
    ],
    [
        [[3.6, 6.2], [10.0, 3.0], [21.0, 25.0], [14.6, 28.2]],
        [[30.0, 21.0], [51.03, 12.59], [54.14, 20.34], [33.1, 28.76]],
        [[14.4, 9.8], [24.4, 4.8], [26.4, 8.8], [16.4, 13.8]],
        [[29.0, 22.0], [49.0, 22.0], [49.0, 39.0], [29.0, 39.0]],
    ],
    [
        [[12.0, 0.0], [21.0, 0.0], [21.0, 6.0], [12.0, 6.0]],
        [[42.13, 4.19], [64.25, -3.62], [69.57, 11.45], [47.44, 19.26]],
        [[7.0, 16.0], [14.0, 16.0], [14.0, 23.0], [7.0, 23.0]],
        [[37.0, 31.0], [45.0, 31.0], [45.0, 39.0], [37.0, 39.0]],
    ],
]


def maps(seed):
    """Two maps of blobs: ellipses that fall off from their centers."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:40, :70]
    found = np.zeros((2, 40, 70), np.float32)
    for place in range(14):
        center, angle = random.uniform(-2, (42, 72)), random.uniform(0, np.pi)
        size, ratio, height = random.uniform((1, 2, 0.5), (3, 6, 1.1))
        along = (x - center[1]) * np.cos(angle) + (y - center[0]) * np.sin(angle)
        across = (y - center[0]) * np.cos(angle) - (x - center[1]) * np.sin(angle)
        blob = height * np.exp(-((along / (size * ratio)) ** 2) - (across / size) ** 2)
        found[place % 3 // 2] = np.maximum(found[place % 3 // 2], blob)
    return found


@pytest.mark.parametrize("seed", range(len(RECORDED)))
def test_regions_are_those_of_opencv(seed):
    corners, scores = text_regions(*maps(seed), Thresholds())
    assert np.allclose(corners, RECORDED[seed], atol=0.011)
    assert ((scores > 0.7) & (scores < 1.1)).all()
    assert not len(text_regions(*maps(seed), Thresholds(text=1.2))[0])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_components(share):
    mask = np.random.default_rng(0).random((37, 53)) < share
    labels, count = ndimage.label(mask)
    found = np.zeros(mask.shape, np.int64)
    for number, (rows, columns, member) in enumerate(components(mask), 1):
        found[rows, columns][member] = number
    assert found.max() == count
    assert (found == labels).all()
