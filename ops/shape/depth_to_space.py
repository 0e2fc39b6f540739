"""DepthToSpace and SpaceToDepth: blocks of pixels moved into channels and back."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import input_error


def _divided(node: Inference, length: Dim, by: int) -> Dim:
    if not isinstance(length, int):
        return length if by == 1 else None
    if length % by:
        node.fail(f"blocks do not divide a length of {length}")
    return length // by


def _multiplied(length: Dim, by: int) -> Dim:
    return length * by if isinstance(length, int) else length if by == 1 else None


def _blocks(node: Inference) -> tuple[tuple[Dim, ...], int]:
    shape, block = node.shape(0), int(node.attributes["blocksize"])
    if block < 1 or (shape is not None and len(shape) != 4):
        node.fail(f"blocks of {block} in {counted(len(shape or ()), 'dim')}")
    return shape or (None,) * 4, block


def infer_depth_to_space(node: Inference) -> None:
    """Fewer channels, more pixels."""
    (n, c, h, w), block = _blocks(node)
    node.set(0, node.dtype(0), (n, _divided(node, c, block * block), _multiplied(h, block), _multiplied(w, block)))


def infer_space_to_depth(node: Inference) -> None:
    """More channels, fewer pixels."""
    (n, c, h, w), block = _blocks(node)
    node.set(0, node.dtype(0), (n, _multiplied(c, block * block), _divided(node, h, block), _divided(node, w, block)))


def _checked(operator: str, x: np.ndarray, block: int, mode: str, axes: tuple[int, ...], by: int) -> None:
    if x.ndim != 4 or block < 1 or mode not in ("DCR", "CRD") or any(x.shape[axis] % by for axis in axes):
        wanted = f"four axes, of which {axes} are multiples of {by}"
        raise input_error(operator, "blocks do not fit the input", expected=wanted, found=f"{list(x.shape)}, {mode}")


@op(
    "DepthToSpace",
    since=28,
    types="tensor",
    traits=(Trait.MOVES,),
    infer=infer_depth_to_space,
    examples=[
        case("f32[2,8,2,3]", blocksize=2),
        case("f32[1,18,2,1]", blocksize=3, mode="CRD"),
        case("f32[0,4,2,3]", blocksize=2),
    ],
)
def depth_to_space(x: np.ndarray, *, blocksize: int, mode: str = "DCR") -> np.ndarray:
    """[N, C * b * b, H, W] to [N, C, H * b, W * b]; the channel counts slowest within a channel's blocks for ``CRD``,
    else fastest."""
    _checked("DepthToSpace", x, blocksize, mode, (1,), blocksize * blocksize)
    n, c, h, w = x.shape
    left = c // (blocksize * blocksize)
    if mode == "DCR":
        moved = x.reshape(n, blocksize, blocksize, left, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        moved = x.reshape(n, left, blocksize, blocksize, h, w).transpose(0, 1, 4, 2, 5, 3)
    return moved.reshape(n, left, h * blocksize, w * blocksize)


@op(
    "SpaceToDepth",
    since=28,
    types="tensor",
    traits=(Trait.MOVES,),
    infer=infer_space_to_depth,
    examples=[
        case("f32[2,3,4,6]", blocksize=2),
        case("f32[1,2,6,3]", blocksize=3, mode="CRD"),
        case("f32[0,1,2,4]", blocksize=2),
    ],
)
def space_to_depth(x: np.ndarray, *, blocksize: int, mode: str = "DCR") -> np.ndarray:
    """[N, C, H * b, W * b] to [N, C * b * b, H, W]: the reverse of DepthToSpace of the same mode."""
    _checked("SpaceToDepth", x, blocksize, mode, (2, 3), blocksize)
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    moved = blocks.transpose(0, 3, 5, 1, 2, 4) if mode == "DCR" else blocks.transpose(0, 1, 3, 5, 2, 4)
    return moved.reshape(n, c * blocksize * blocksize, h // blocksize, w // blocksize)
