"""Pictures on the device: grids of positions; what else works on pictures runs on the CPU."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.place import Planned, Step, cuda, on_cpu
from ...runtime.cuda.product import Axes, product
from .affine_grid import affine_grid
from .image_decoder import image_decoder
from .resize import upsample

on_cpu("it decodes files", image_decoder)
on_cpu("it is taken to Resize when a model is opened", upsample)


@cuda(affine_grid)
def affine_grid_on_device(step: Step) -> Planned:
    """A product of the matrices with the points of a whole grid, which the operator itself gives for the identity."""
    theta, size, y = step.input(0), step.constant(1), step.output()
    if size is None:
        return "its size is computed"
    n, rank, width = theta.shape
    assert affine_grid.compute is not None
    identity = np.eye(rank, width, dtype=np.float32)[None]
    points = affine_grid.compute(identity, np.array([1, 1, *size[2:]]), align_corners=step.attributes["align_corners"]).reshape(-1, rank)
    whole = step.held(np.concatenate([points, np.ones((len(points), 1), np.float32)], 1).astype(theta.dtype))
    return product(
        whole, theta, y, Axes([n], [0], [theta.strides[0]], [y.strides[0]]), Axes([len(points)], [width], None, [rank]),
        Axes([rank], None, [width], [1]), Axes([width], [1], [1], None),
    )
