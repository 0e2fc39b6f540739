"""Vision transformer on packed patches, with rotary positions along both axes.

Its inputs are ``pixel_values`` f32 [patches, channels x frames x height x width], which transformers' processors make,
and ``grid_thw`` i64 [pictures, 3]. Where the hyper-parameter `one_frame` is true, a run has one frame of one picture:
no mask of patches times patches tells frames apart, and windows are tables of patches, `WINDOWS` and `SLOTS`. The
weights have the names of `models/schema/patches/encoder.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config
from ....runtime.ir.graph import Graph, Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ..linear import linear
from ..mlp import gated, plain
from ..net import Net
from ..norm import layer_norm
from ..rope import inverse
from .patch_grid import PatchGrid

GRID = "grid_thw"
"""The input i64 [pictures, 3]: frames, rows and columns of the patches of each picture."""
WINDOWS, SLOTS = "window_patches", "window_slots"
"""Inputs i64 [windows, patches of a window], with the number of patches where a window has fewer, and i64 [patches]:
the index of each patch among those."""
THETA = 1e4
Norm = Callable[[Net, Value, str], Value]


@dataclass(frozen=True)
class Windows:
    """Windows of patches.

    Attributes:
        patches, slots: the inputs `WINDOWS` and `SLOTS`.
        seen: which entries are patches, bool [windows, 1, 1, patches of a window].
    """

    patches: Value
    slots: Value
    seen: Value


Visible = Value | Windows | None
"""Visibility of patches in a layer."""


def window_side(pixels: int, merge: int, patch: int) -> int:
    """Patches along a window of some pixels, whole squares of `merge` patches."""
    return max(pixels // merge // patch, 1) * merge


def window_tables(rows: int, columns: int, merge: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """`WINDOWS` and `SLOTS` of a frame of rows and columns of patches, in the order of squares of `merge` x `merge`. A
    window is at most as high and as wide as the frame, so that tables have less than 4 entries per patch."""
    squares = np.arange(rows * columns).reshape(rows // merge, columns // merge, merge, merge)
    patches = squares.transpose(0, 2, 1, 3).reshape(rows, columns)
    height, width = min(side, rows), min(side, columns)
    down, across = -(-rows // height), -(-columns // width)
    whole = np.full((down * height, across * width), rows * columns)
    whole[:rows, :columns] = patches
    table = whole.reshape(down, height, across, width).transpose(0, 2, 1, 3).reshape(down * across, height * width)
    flat = table.ravel()
    slots = np.zeros(rows * columns, np.int64)
    slots[flat[flat < rows * columns]] = np.flatnonzero(flat < rows * columns)
    return table.astype(np.int64), slots


def patch_norm(net: Net, x: Value, name: str) -> Value:
    """Layer norm with the epsilon that Qwen's encoders have."""
    return layer_norm(net, x, name, 1e-6)


class PatchEncoder(Net):
    """A net with the inputs of packed patches.

    Args:
        merge: the side of the squares of patches in whose order the patches are.

    Attributes:
        grid: where the patches are.
    """

    def __init__(self, graph: Graph, config: Config, weights: Mapping[str, StoredTensor], merge: int) -> None:
        super().__init__(graph, config, weights)
        width = config.channels * config.values.get("frames", 1) * config.patch**2
        self.pixels = self.input("pixel_values", "f32", ("patches", width))
        self.sizes = self.input(GRID, "i64", ("pictures", 3))
        self.grid = self.grid_of(merge)

    def grid_of(self, merge: int) -> PatchGrid:
        """The grid of patches in the order of squares of `merge` x `merge`."""
        return PatchGrid(self, self.sizes, self.Shape(self.pixels, start=0, end=1), merge)

    def in_frames(self) -> Value | None:
        """Visibility of patches in one frame; None if all patches of a run see each other."""
        return None if self.config.values.get("one_frame") else self.grid.same_frame()

    def in_windows(self, size: int) -> Value | Windows:
        """Visibility of patches in one window of `size` x `size` patches."""
        if not self.config.values.get("one_frame"):
            return self.grid.same_window(size)
        return self.once("windows", self._windows)

    def _windows(self) -> Windows:
        patches = self.input(WINDOWS, "i64", ("windows", "window_area"))
        slots = self.input(SLOTS, "i64", ("patches",))
        seen = self.Less(patches, self.Shape(self.pixels, start=0, end=1))
        return Windows(patches, slots, self.Unsqueeze(seen, [1, 2]))

    def embedded(self) -> Value:
        """Patches by a linear layer, [patches, hidden]."""
        return linear(self, self.pixels, "patch_embed")

    def rotation(self) -> tuple[Value, Value]:
        """Cosines and sines [1, patches, head size / 2]: the first half of the angles are those of rows."""
        half = self.config.hidden // self.config.heads // 2
        frequencies = self.constant(inverse(half, THETA))
        places = (self.grid.rows, self.grid.columns)
        angles = [self.Mul(self.Cast(self.Unsqueeze(axis, [1]), to=1), frequencies) for axis in places]
        both = self.Unsqueeze(self.Concat(*angles, axis=1), [0])
        return self.Cos(both), self.Sin(both)

    def layers(self, x: Value, norm: Norm, mask: Callable[[int], Visible]) -> Iterator[Value]:
        """The hidden states [1, patches, hidden] after each pre-norm layer, of `x` [patches, hidden]; `mask`: which
        patches see each other in a layer."""
        kind = self.config.act
        rotation = self.rotation()
        x = self.Unsqueeze(x, [0])
        for i in range(self.config.layers):
            name = f"blocks.{i}"
            x = self.Add(x, self._attention(norm(self, x, f"{name}.norm1"), f"{name}.attn", rotation, mask(i)))
            feed_forward = gated if self.has(f"{name}.mlp.gate.weight") else plain
            x = self.Add(x, feed_forward(self, norm(self, x, f"{name}.norm2"), f"{name}.mlp", kind))
            yield x

    def _attention(self, x: Value, name: str, rotation: tuple[Value, Value], mask: Visible) -> Value:
        heads, width = self.config.heads, self.config.hidden
        if self.has(f"{name}.qkv.weight"):
            q, k, v = self.split(linear(self, x, f"{name}.qkv"), [width] * 3)
        else:
            q, k, v = (linear(self, x, f"{name}.{part}") for part in "qkv")
        q, k = (self.RotaryEmbedding(item, *rotation, num_heads=heads) for item in (q, k))
        if not isinstance(mask, Windows):
            y = self.Attention(q, k, v, mask, q_num_heads=heads, kv_num_heads=heads)
            return linear(self, y, f"{name}.o")
        nothing = self.constant(np.zeros((1, width), np.float32))
        padded = (self.Concat(self.Squeeze(item, [0]), nothing, axis=0) for item in (q, k, v))
        q, k, v = (self.Gather(item, mask.patches) for item in padded)
        y = self.Attention(q, k, v, mask.seen, q_num_heads=heads, kv_num_heads=heads)
        y = self.Gather(self.Reshape(y, [-1, width]), mask.slots)
        return linear(self, self.Unsqueeze(y, [0]), f"{name}.o")

    def merged(self, x: Value, name: str, norm: Norm, *, norm_first: bool = True) -> Value:
        """Squares of patches as one token each, [tokens, width], by two linear layers ``NAME.up`` and ``NAME.down``;
        `norm_first`: whether ``NAME.norm`` is of single patches."""
        square = self.config.merge**2 * self.config.hidden

        def joined(y: Value) -> Value:
            value: Value = self.Reshape(y, [-1, square])
            return value

        y = joined(norm(self, x, f"{name}.norm")) if norm_first else norm(self, joined(x), f"{name}.norm")
        return plain(self, y, name, "gelu")
