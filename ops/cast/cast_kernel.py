"""Native Cast and CastLike between machine dtypes, f16 and bf16."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.plan.elementwise_fusion import FUNCTIONS, NARROW, POINTERS
from ...runtime.plan.kernel_api import Apply, Buffer, Chain, Planned, Step, View, native
from .cast import cast, cast_like


def _same(x: Any) -> Any:
    return x


def _cut(x: Any) -> Any:
    return np.int64(x)


def _true(x: Any) -> Any:
    return x != 0


FUNCTIONS |= {"Cast": _same, "Cast:int": _cut, "Cast:bool": _true}


def conversion(x: Buffer, y: Buffer) -> Chain | None:
    """From one buffer to another in another dtype; None where no kernel rounds as NumPy does."""
    source, target = x.dtype, y.dtype
    if source.name not in POINTERS or target.name not in POINTERS:
        return None
    floats = source.kind not in "iub"
    if (target.name == "uint64" and floats) or (source == np.float64 and target.name in NARROW):
        return None
    key = "Cast:bool" if target == np.bool_ else "Cast:int" if floats and target.kind in "iu" else "Cast"
    return Chain((Apply(key, (x,), (), np.dtype(np.float32) if source.name in NARROW else source, target),), y)


@native(cast, cast_like)
def plan_cast(step: Step) -> Planned:
    """Plan conversions between machine types."""
    x, result = step.inputs[0], step.results[0]
    if x is None or result is None:
        return None
    return View(x) if x.dtype == result[0] else conversion(x, step.output())
