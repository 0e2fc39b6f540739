"""Function: PyTorch's class of operations that define their own gradient.

class Clamped(cc.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(0, 1)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x > 0)

Clamped.apply(x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Op
from ...runtime.ir.shape_inference import Inference
from ..core.expression import apply
from ..core.grad_mode import GRAD_MODE, no_grad
from ..core.tensor import Tensor
from ..operations.creation import zeros_like
from .hooks import own_gradient

CODE = "E-TENSOR-FUNCTION"


class Context:
    """Values that `forward` saves for `backward`; attributes can be added.

    Attributes:
        saved_tensors: what `save_for_backward` was given.
        needs_input_grad: for each argument whether its gradient is wanted.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.saved_tensors: tuple[Any, ...] = ()
        self.needs_input_grad = needs_input_grad
        self.materialize_grads = True
        self.fixed: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for `backward`."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *results: Tensor) -> None:
        """Let no gradients flow through some of the results."""
        self.fixed = results

    if TYPE_CHECKING:  # what forward adds

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` gets zeros, and not None, for results that nothing depends on."""
        self.materialize_grads = value


def once_differentiable(backward: Any) -> Any:
    """PyTorch's decorator of a `backward` whose gradients have no gradient; they may be taken here."""
    return backward


class Function:
    """Base of operations with static methods `forward(ctx, *arguments)` and `backward(ctx, *grads)`, which returns the
    gradient of each argument, None for those that have none. Call it as `apply(*arguments)`.

    With a third static method ``setup_context(ctx, arguments, result)``, `forward` takes the arguments alone.
    """

    @staticmethod
    def forward(ctx: Context, *arguments: Any) -> Any:
        """A tensor, or a tuple of tensors."""
        raise NotImplementedError("a Function defines forward()")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        """The gradients of the arguments."""
        raise NotImplementedError("a Function defines backward()")

    if TYPE_CHECKING:
        setup_context: Callable[[Context, tuple[Any, ...], Any], None]

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """Call `forward`, with the gradient that `backward` defines."""
        moving = [isinstance(each, Tensor) and each.requires_grad for each in arguments]
        ctx = Context(tuple(moving))
        with no_grad():
            if "setup_context" in dir(cls):
                found = cls.forward(*arguments)
                cls.setup_context(ctx, arguments, found)
            else:
                found = cls.forward(ctx, *arguments)
        several = isinstance(found, tuple)
        results = found if several else (found,)
        if not all(isinstance(result, Tensor) for result in results):
            raise UsageError(CODE, None, f"{cls.__name__}.forward returns something that is not a tensor")
        if not any(moving) or not GRAD_MODE.enabled:
            return found
        given = [each.expression if moves else None for each, moves in zip(arguments, moving, strict=True)]
        inputs = [each for each in given if each is not None]
        made = [
            result if any(result is item for item in ctx.fixed) else Tensor(apply(OWN, [result.expression, *inputs]))
            for result in results
        ]

        def gradient(grads: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
            if ctx.materialize_grads:
                grads = [zeros_like(each) if grad is None else grad for each, grad in zip(results, grads, strict=True)]
            parts = cls.backward(ctx, *grads)
            parts = parts if isinstance(parts, tuple) else (parts,)
            if len(parts) != len(arguments):
                found = f"{counted(len(parts), 'gradient')} of {counted(len(arguments), 'argument')}"
                why = f"{cls.__name__}.backward returns {found}"
                raise UsageError(CODE, None, why, hint="Return None for arguments without a gradient")
            for part, argument, moves in zip(parts, arguments, moving, strict=True):
                if moves and part is not None and part.shape != argument.shape:
                    why = f"{cls.__name__}.backward returns a gradient of another shape than the argument"
                    raise UsageError(CODE, None, why, expected=list(argument.shape), found=list(part.shape))
            return parts

        own_gradient([each.expression for each in made], given, gradient)
        return tuple(made) if several else made[0]


def _as_first(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))


def _as_identity(node: Node, build: Builder) -> None:
    build.add("Identity", node.inputs[:1], outputs=node.outputs)


OWN = Op("OwnGradient", CANDLE, compute=lambda x, *inputs: x, infer=_as_first, lower=_as_identity)
"""Returns its first input; the gradients of the others are those of a `Function`."""
