"""AffineGrid on the device; ImageDecoder runs on the CPU."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.matmul.tiled import Axes, Contraction, product
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda, decomposed, on_cpu
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from .affine_grid import affine_grid
from .image_decoder import image_decoder
from .resize import upsample

on_cpu("it decodes files", image_decoder)


@decomposed(upsample)
def upsample_of_others(node: Node, build: Builder) -> None:
    """A Resize; opened models do not contain it."""
    mode = {**node.op.defaults, **node.attributes}["mode"]
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    build.add("Resize", [node.inputs[0], None, node.inputs[1]], attributes, outputs=node.outputs)


@cuda(affine_grid)
def affine_grid_on_device(step: Step) -> Planned:
    """Multiply the matrices by the points of the identity's grid."""
    theta, size, y = step.input(0), step.constant(1), step.output()
    if size is None:
        return "its size is not a constant"
    n, rank, width = theta.shape
    assert affine_grid.compute is not None
    identity = np.eye(rank, width, dtype=np.float32)[None]
    points = affine_grid.compute(
        identity, np.array([1, 1, *size[2:]]), align_corners=step.attributes["align_corners"]
    ).reshape(-1, rank)
    whole = step.constant_buffer(np.concatenate([points, np.ones((len(points), 1), np.float32)], 1).astype(theta.dtype))
    return product(
        whole,
        theta,
        y,
        Contraction(
            stack=Axes([n], [0], [theta.strides[0]], [y.strides[0]]),
            rows=Axes([len(points)], [width], None, [rank]),
            columns=Axes([rank], None, [width], [1]),
            depth=Axes([width], [1], [1], None),
        ),
    )
