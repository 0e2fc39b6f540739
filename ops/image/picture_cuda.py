"""Pictures on the device: grids of positions; what else works on pictures runs on the CPU."""

from __future__ import annotations

import numpy as np

from ...runtime.build import Builder
from ...runtime.cuda.place import Planned, Step, composed, cuda, on_cpu
from ...runtime.cuda.product import Axes, product
from ...runtime.graph import Node
from .affine_grid import affine_grid
from .image_decoder import image_decoder
from .resize import upsample

on_cpu("it decodes files", image_decoder)


@composed(upsample)
def upsample_of_others(node: Node, build: Builder) -> None:
    """A Resize; a model that is opened has none left."""
    mode = {**node.op.defaults, **node.attributes}["mode"]
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    build.add("Resize", [node.inputs[0], None, node.inputs[1]], attributes, outputs=node.outputs)


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
