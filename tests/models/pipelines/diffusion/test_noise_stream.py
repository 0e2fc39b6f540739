"""Noise of a seed against PyTorch's generator on the CPU."""

import numpy as np
import pytest
from candle_convert.models.pipelines.diffusion.noise_stream import NoiseStream, normal

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("shape", [(1, 4, 8, 8), (1, 4, 5, 7), (1, 1, 3, 3)])
@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_numbers_of_pytorch(shape, seed):
    generator, stream = torch.Generator().manual_seed(seed), NoiseStream("torch", seed)
    for _ in range(3):
        expected = torch.randn(shape, generator=generator).numpy()
        assert np.abs(stream.normal(shape) - expected).max() < 1e-6


def test_each_picture_has_its_stream():
    both = normal([NoiseStream("numpy", 1), NoiseStream("numpy", 2)], (4, 8, 8))
    assert both.shape == (2, 4, 8, 8)
    assert np.array_equal(both[1:], normal([NoiseStream("numpy", 2)], (4, 8, 8)))
    assert abs(both.std() - 1) < 0.1
