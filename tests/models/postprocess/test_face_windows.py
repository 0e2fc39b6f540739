"""Windows of faces: the cascade on made-up judgments, as facenet-pytorch finds them, recorded; images of windows."""

import numpy as np
import pytest
import torch
from candle_convert.models.pipelines.image.face_detection import FaceDetection
from candle_convert.models.postprocess.face_windows import Judged, apart, averaged, crops
from candle_convert.tests.builders.pictures import made
from torch.nn.functional import interpolate

SIZE = (64, 90)
RECORDED = {
    0: [
        [12.35, 23.29, 39.93, 43.27, 0.985, 26.30, 33.33],
        [13.19, -0.73, 42.97, 36.48, 0.978, 37.07, 5.04],
        [33.37, 20.47, 52.52, 42.25, 0.945, 51.61, 43.27],
        [27.27, 43.12, 52.31, 64.40, 0.915, 42.38, 56.77],
        [45.17, 29.25, 65.43, 53.40, 0.907, 58.95, 44.72],
        [7.14, 13.33, 22.92, 30.07, 0.903, 19.69, 18.53],
        [24.83, 38.05, 55.05, 57.23, 0.884, 27.66, 47.99],
        [49.00, 41.04, 72.73, 61.15, 0.807, 68.71, 39.16],
        [30.91, 13.30, 52.44, 27.43, 0.760, 37.61, 15.62],
    ],
    1: [
        [-7.62, 44.85, 20.79, 67.37, 0.991, 5.44, 51.67],
        [47.63, 9.67, 68.60, 46.04, 0.954, 45.91, 28.63],
        [22.73, 20.69, 47.81, 52.33, 0.950, 27.24, 46.09],
        [8.99, -1.40, 29.59, 31.02, 0.914, 24.25, 7.39],
        [-2.00, 11.15, 24.32, 34.04, 0.914, 19.15, 13.63],
        [52.76, 26.07, 78.40, 43.77, 0.890, 66.97, 44.33],
        [21.00, 3.59, 43.76, 22.44, 0.826, 21.83, 12.63],
        [66.92, 35.89, 86.40, 57.51, 0.763, 81.18, 52.45],
        [41.08, 17.45, 61.84, 35.43, 0.702, 59.61, 33.48],
    ],
    2: [
        [47.11, 11.57, 70.88, 35.91, 0.977, 50.44, 28.92],
        [4.30, 20.74, 32.82, 45.11, 0.956, 9.17, 28.10],
        [27.70, 26.26, 55.00, 51.91, 0.923, 35.44, 32.82],
        [53.32, -1.85, 72.22, 16.48, 0.921, 57.68, 8.91],
        [34.51, 6.89, 54.10, 25.85, 0.899, 35.46, 7.99],
        [29.57, 36.04, 65.16, 69.22, 0.870, 41.59, 54.69],
        [47.42, 34.35, 71.88, 52.41, 0.844, 64.29, 49.42],
    ],
}
"""For each seed faces: x0, y0, x1, y1, score, and x and y of the nose."""


class Made:
    """Judgments by a generator, whatever the images show; most windows that are scanned are not proposed."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def judge(self, name, pixels):
        count, _, *size = pixels.shape
        shape = [length // 2 - 5 + length % 2 for length in size] if name == "pnet" else []
        scores = self.random.random((count, *shape)) ** (9 if name == "pnet" else 0.5)
        offsets = self.random.normal(0, 0.1, (count, 4, *shape))
        landmarks = self.random.random((count, 10)) if name == "onet" else None
        return Judged(*(each if each is None else each.astype(np.float32) for each in (scores, offsets, landmarks)))


@pytest.mark.parametrize("seed", RECORDED)
def test_faces_are_those_of_facenet_pytorch(seed):
    found = FaceDetection(Made(seed)).predict(made(*SIZE))
    expected = np.array(RECORDED[seed])
    assert len(found) == len(expected)
    edges = np.clip(expected[:, :4], 0, (*SIZE[::-1], *SIZE[::-1]))
    assert np.allclose([list(face["box"].values()) for face in found], edges, atol=0.02)
    assert np.allclose([face["score"] for face in found], expected[:, 4], atol=1e-3)
    assert np.allclose([face["keypoints"][2] for face in found], expected[:, 5:], atol=0.02)


@pytest.mark.parametrize("size", [(24, 24), (7, 90), (64, 11), (130, 100)], ids=str)
def test_pixels_are_averaged_as_torch_does(size):
    pixels = made(*SIZE)
    expected = interpolate(torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32))[None], size, mode="area")
    assert np.allclose(averaged(pixels, size).transpose(2, 0, 1), expected[0].numpy(), atol=1e-3)


def test_crops_leave_out_windows_beside_the_picture():
    edges = np.array([[-9, -9, 20, 20], [-9, 3, -1, 12], [80, 50, 99, 70], [95, 1, 99, 5]], np.float32)
    images, shown = crops(made(*SIZE), edges, 24)
    assert shown.tolist() == [0, 2]
    assert images.shape == (2, 3, 24, 24)
    whole = made(*SIZE)[:20, :20].mean((0, 1)) / 128 - 127.5 / 128
    assert np.allclose(images[0].mean((1, 2)), whole, atol=0.02)


def test_a_window_inside_a_better_one_is_left_out():
    edges = np.array([[0, 0, 99, 99], [10, 10, 29, 29], [90, 90, 140, 140]], np.float32)
    assert apart(edges, np.array([0.9, 0.8, 0.95]), 0.7).tolist() == [2, 0]
    assert apart(edges, np.array([0.9, 0.99, 0.95]), 0.7).tolist() == [1, 2]


def test_a_picture_smaller_than_a_face_has_none():
    assert FaceDetection(Made(0)).predict(made(15, 15)) == []
