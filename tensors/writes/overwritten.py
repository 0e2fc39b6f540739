"""Values that are written into a tensor that has a history, by a write that records no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Op
from ...runtime.ir.shape_inference import Inference
from ..core.expression import Expression, apply
from ..core.grad_mode import GRAD_MODE
from ..core.registry import method
from ..core.tensor import Tensor


@method()
def overwritten(self: Tensor, after: Expression) -> Tensor:
    """The values of `after` as what this tensor, which was computed from others, becomes by a write.

    Gradients flow on to what that was computed from if the write was hidden from them (`no_grad`, ``.data``), as if
    there was none, and do not where the write is recorded, because nothing of the old values is left.
    """
    return Tensor(apply(RECORDED if GRAD_MODE.enabled else HIDDEN, [after, self.expression]))


def _as_first(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))


def _as_identity(node: Node, build: Builder) -> None:
    build.add("Identity", node.inputs[:1], outputs=node.outputs)


def _to_history(node: Node, build: Any, gradients: Sequence[Any]) -> Sequence[Any]:
    return None, gradients[0]


def _to_none(node: Node, build: Any, gradients: Sequence[Any]) -> Sequence[Any]:
    return None, None


HIDDEN = Op("Overwritten", CANDLE, compute=lambda x, before: x, infer=_as_first, lower=_as_identity)
RECORDED = Op("Replaced", CANDLE, compute=lambda x, before: x, infer=_as_first, lower=_as_identity)
HIDDEN.gradients.append(_to_history)
RECORDED.gradients.append(_to_none)
