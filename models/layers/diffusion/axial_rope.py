"""Rotary position embedding over several axes (axial RoPE): each axis of a position rotates a share of every head, in
pairs of neighbouring elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.units import counted
from ....runtime.contract.architecture import Config, Key
from ....runtime.contract.hyperparameter import EVEN, Kind, Listed, ParameterError
from ....runtime.ir.graph import Value
from ..net import Net

MAX_AXES = 8
Angles = tuple[Value, Value]
"""Cosines and sines."""


@dataclass(frozen=True)
class AxisSizes(Key):
    """Hyper-parameter: rotated elements per axis, which sum to the head size (``head_dim``, read above)."""

    kind: Kind = Listed(EVEN, 1, MAX_AXES)

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        found = super().read(names, source, config)
        if sum(found) != config.head_dim:
            key = next(iter(self.keys(names)), self.name)
            raise ParameterError(key, f"{counted(sum(found), 'element')} in all, where a head has {config.head_dim:,}")
        return found


def axial_angles(net: Net, positions: Value, batch: Value, sizes: Sequence[int], theta: float) -> Angles:
    """Cosines and sines [batch, length, half a head] at f32 `positions` [length, axes].

    Args:
        batch: the number of rows, int64 [1].
        sizes: rotated elements of each axis.
        theta: the frequency base.
    """
    axis = [index for index, size in enumerate(sizes) for _ in range(size // 2)]
    powers = np.concatenate([np.arange(0, size, 2) / size for size in sizes])
    frequencies = (1.0 / theta**powers).astype(np.float32)
    angles = net.Unsqueeze(net.Mul(net.Gather(positions, axis, axis=1), frequencies), [0])
    shape = net.Concat(batch, [1, 1], axis=0)
    return net.Expand(net.Cos(angles), shape), net.Expand(net.Sin(angles), shape)


def rotated(net: Net, x: Value, angles: Angles) -> Value:
    """`x` [batch, length, heads x size] with the pairs of each head rotated."""
    y: Value = net.RotaryEmbedding(x, *angles, num_heads=net.config.heads, interleaved=1)
    return y
