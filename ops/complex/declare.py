"""Declaration of operators of complex numbers by those of real ones: NumPy computes both, and the gradient of a
holomorphic operator is the rule of the real one at conjugate inputs."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import COMPLEX
from ...runtime.ir.graph import Node, Value
from ...runtime.ir.op import Compute, Gradient, Infer, Op, Undecomposable
from ...runtime.ir.shape_inference import Inference


def is_complex(value: Value | None) -> bool:
    """Whether a value is known to have complex elements."""
    return value is not None and value.dtype is not None and value.dtype.kind == "complex"


def real_result(node: Inference) -> None:
    """Output 0 has the shape of input 0 and the dtype of its parts."""
    dtype = node.dtype(0)
    node.set(0, None if dtype is None else dtype.to_real(), node.shape(0))


def holomorphic(name: str, real: Op, *, compute: Compute | None = None, infer: Infer | None = None) -> Op:
    """The operator of complex elements that corresponds to one of real elements, whose name follows ``Complex``.

    Args:
        compute, infer: in place of those of the real operator.
    """
    rule = _at_conjugates(real)
    return Op(name, COMPLEX, 1, compute or real.compute, infer or real.infer, gradients=[rule])


def on_complex(name: str, real: Op, *, infer: Infer | None = None) -> Op:
    """As `holomorphic`, with a gradient that is registered by itself."""
    return Op(name, COMPLEX, 1, real.compute, infer or real.infer)


def _at_conjugates(real: Op) -> Gradient:
    """The gradient rule of a real operator at conjugate inputs and outputs.

    A function f that is real on the real axis has f'(conj z) = conj f'(z), and PyTorch's gradient is g conj f'(z).
    """

    def rule(node: Node, build: Builder, gradients: Sequence[Value | None]) -> Sequence[Value | None]:
        if not real.gradients:
            raise Undecomposable(f"{real.name} has no gradient rule")

        def conjugate(value: Value) -> Value:
            return build.add("Conj", [value], domain=COMPLEX) if is_complex(value) else value

        inputs = [None if value is None else conjugate(value) for value in node.inputs]
        outputs = [conjugate(value) if value.name else value for value in node.outputs]
        return real.gradients[0](Node(real, list(inputs), outputs, node.attributes), build, gradients)

    return rule
