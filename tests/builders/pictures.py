"""Pictures of odd sizes: made by arithmetic, and those that scikit-image ships."""

import functools
import importlib.util
import io
from pathlib import Path

import numpy as np

PACKAGED = ("astronaut.png", "coffee.png", "rocket.jpg", "chelsea.png", "retina.jpg", "page.png")


@functools.cache
def made(height, width, seed=0):
    """Bytes [height, width, 3]: slopes, an edge, and noise."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    slopes = np.stack([rows * 255 / height, columns * 255 / width, (rows + 2 * columns) % 97 * 2], -1)
    slopes[height // 3 :, width // 4 : width // 2] = 255 - slopes[height // 3 :, width // 4 : width // 2]
    return np.clip(slopes + generator.normal(0, 20, slopes.shape), 0, 255).astype(np.uint8)


MADE = (made(97, 131), made(203, 118, 1), made(37, 41, 2), made(260, 391, 3))


def packaged(name):
    """The path of a picture of scikit-image, None without the package."""
    found = importlib.util.find_spec("skimage")
    path = found and Path(found.origin).parent / "data" / name
    return path if path and path.is_file() else None


@functools.cache
def pictures():
    """Images of Pillow, RGB."""
    from PIL import Image

    paths = [packaged(name) for name in PACKAGED[:4]]
    return [
        *map(Image.fromarray, MADE),
        *(Image.open(io.BytesIO(path.read_bytes())).convert("RGB") for path in paths if path),
    ]


__all__ = ["MADE", "made", "packaged", "pictures"]
