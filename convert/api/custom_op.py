"""Custom operators: operators that a program registers for its own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.ir import registry
from ...runtime.ir.call import Call
from ...runtime.ir.op import Op
from ...runtime.ir.shape_inference import Inference
from ...tensors.core.tensor import Tensor


@dataclass(frozen=True)
class Context:
    """Attributes and output types that a user's operator gets besides its inputs.

    Attributes:
        attributes: of the node, by name.
        name: of the node.
        wanted: for each output, whether anything uses it.
    """

    attributes: Mapping[str, Any]
    name: str
    wanted: tuple[bool, ...]


Function = Callable[..., Any]


def register_op(
    domain: str, name: str, since: int = 1, *, infer: Callable[[Inference], None] | None = None, replace: bool = False
) -> Callable[[Function], Function]:
    """Make an operator of a function ``(ctx, *inputs)`` of NumPy arrays, None where an optional input is absent.

        cc.register_op("my.domain", "Swish")(lambda ctx, x: x * cc.sigmoid(x))

    It returns an array or tensor, or a tuple with one for each output. Models that are opened afterwards can be run
    with it, checked, and simplified.

    Args:
        domain, name: as the nodes of a model have them; "ai.onnx" is "".
        since: the opset of the domain that it is the definition of.
        infer: says dtypes and shapes of the outputs, ``infer=lambda node: node.set(0, node.dtype(0), node.shape(0))``;
            they are known only when the model runs where it is left out.
        replace: whether an operator that exists may be replaced.

    Raises UsageError for one that exists.
    """
    domain = "" if domain == "ai.onnx" else domain

    def registered(function: Function) -> Function:
        if registry.operator(name, domain) is not None and not replace:
            why = f"the operator {domain or 'ai.onnx'}.{name} already exists"
            raise UsageError("E-OP-EXISTS", None, why, hint="Use replace=True")

        def compute(*inputs: Any, call: Call, **attributes: Any) -> Any:
            return _arrays(function(Context(attributes, call.node.name, call.used_outputs), *inputs))

        registry.register(Op(name, domain, since, compute, infer))
        return function

    return registered


def _arrays(result: Any) -> Any:
    """The results of an operator, tensors as arrays."""
    if isinstance(result, tuple | list):
        return type(result)(map(_arrays, result))
    return result.numpy(force=True) if isinstance(result, Tensor) else result
