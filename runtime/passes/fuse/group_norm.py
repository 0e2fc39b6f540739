"""GroupNormalization fusion: InstanceNormalization over a reshaped input becomes GroupNormalization."""

from __future__ import annotations

import numpy as np

from ...ir.builder import Builder
from ...ir.graph import Value
from ..pattern.pattern import call, product, var
from ..pattern.rewrite_rules import Match, Rule, is_float, same_dims
from .attention import known_equal

_inner = call(
    "InstanceNormalization", call("Reshape", var("x"), ..., name="split"), var("ones"), var("zeros"), name="instance"
)
_normal = call("Reshape", _inner, ..., name="back")


def _group_norm(match: Match, build: Builder) -> Value | None:
    x, split, back = match["x"], match.node("split").outputs[0], match.node("back").outputs[0]
    ones, zeros = match.array(match["ones"]), match.array(match["zeros"])
    if ones is None or zeros is None or (ones != 1).any() or zeros.any() or not is_float(x) or not same_dims(x, back):
        return None
    shape, groups = x.shape or (), (split.shape or (None, None))[1]
    channels = shape[1] if len(shape) > 2 else None
    if (
        not isinstance(channels, int)
        or not isinstance(groups, int)
        or not groups
        or channels % groups
        or split.shape is None
    ):
        return None
    if not known_equal(split.shape[0], shape[0]) or shape[0] == 0:
        return None
    parameters = [
        _by_channel(match, name, start, channels, len(shape)) for name, start in (("scale", 1.0), ("bias", 0.0))
    ]
    if any(array is None for array in parameters) or x.dtype is None:
        return None
    epsilon = match.attributes("instance")["epsilon"]
    inputs = [x, *(build.constant(np.asarray(array).astype(x.dtype.as_numpy())) for array in parameters)]
    return build.add("GroupNormalization", inputs, {"num_groups": groups, "epsilon": epsilon})


def _by_channel(match: Match, name: str, start: float, channels: int, rank: int) -> np.ndarray | None:
    """A constant as [channels]."""
    if not match.has(name):
        return np.full(channels, start)
    array = match.array(match[name])
    if array is None or array.ndim > rank or array.ndim < rank - 1 or array.size not in (1, channels):
        return None
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return np.broadcast_to(full.reshape(-1), channels) if full.shape == (1, full.shape[1], *(1,) * (rank - 2)) else None


FUSION_RULES = (
    Rule("GroupNormalization", product(_normal, var("scale")) + var("bias"), _group_norm, 21),
    Rule("GroupNormalization without scale", _normal, _group_norm, 21),
)
