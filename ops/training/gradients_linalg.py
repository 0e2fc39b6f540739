"""Gradients of matrix products, Einsum, cumulative sums and reductions."""

from __future__ import annotations

from ...runtime.base.errors import UnsupportedError
from ..linalg import einsum, gemm, matmul
from ..nn import hardmax, log_softmax, softmax
from ..reduce import arg_min_max, cumulative, reduce
from ..rules.expression import Term
from .gradient_rule import Step, differentiated, without_gradient


@differentiated(matmul.matmul)
def _matmul(step: Step) -> list[Term | None]:
    a, b, g = step.input(0), step.input(1), step.slope
    left, middle, right = {
        (True, True): ("k", "k", ""),
        (True, False): ("k", "...kn", "...n"),
        (False, True): ("...mk", "k", "...m"),
    }.get((a.rank == 1, b.rank == 1), ("...mk", "...kn", "...mn"))
    by_a = step.of("Einsum", [g, b], equation=f"{right},{middle}->{_stacked(left, middle)}")
    by_b = step.of("Einsum", [a, g], equation=f"{left},{right}->{_stacked(middle, left)}")
    return [by_a.summed_to(a), by_b.summed_to(b)]


def _stacked(term: str, other: str) -> str:
    """The term of a vector with the stack that it was multiplied with."""
    return term if "..." in term or "..." not in other else f"...{term}"


@differentiated(gemm.gemm)
def _gemm(step: Step) -> list[Term | None]:
    a, b, c = (*step.x, None)[:3]
    assert a is not None
    assert b is not None
    g, alpha, transposed_a, transposed_b = (
        step.slope,
        step.attributes["alpha"],
        step.attributes["transA"],
        step.attributes["transB"],
    )
    by_a = (
        g.call("Gemm", b, alpha=alpha, transB=int(not transposed_b))
        if not transposed_a
        else b.call("Gemm", g, alpha=alpha, transA=transposed_b, transB=1)
    )
    by_b = (
        a.call("Gemm", g, alpha=alpha, transA=int(not transposed_a))
        if not transposed_b
        else g.call("Gemm", a, alpha=alpha, transA=1, transB=transposed_a)
    )
    return [by_a, by_b, None if c is None else (g * step.attributes["beta"]).summed_to(c)]


@differentiated(einsum.einsum)
def _einsum(step: Step) -> list[Term | None]:
    """The gradient takes the place of an operand; a tensor of ones in its shape carries the indices that only it
    has."""
    terms, output = einsum.parsed(step.attributes["equation"])
    found: list[Term | None] = []
    for index, (term, x) in enumerate(zip(terms, step.x, strict=True)):
        assert x is not None
        if len(set(term.replace(".", ""))) != len(term.replace(".", "")):
            raise UnsupportedError(
                "E-OP-GRADIENT",
                None,
                "no derivative of an Einsum along a diagonal is known",
                hint="Take the diagonal elsewhere",
            )
        others = [
            (name, other) for place, (name, other) in enumerate(zip(terms, step.x, strict=True)) if place != index
        ]
        names = [output, *(name for name, _ in others), term]
        whole = term if "..." in term or not any("..." in name for name in names) else f"...{term}"
        parts = step.of(
            "Einsum", [step.slope, *(other for _, other in others), x.filled(1)], equation=f"{','.join(names)}->{whole}"
        )
        found.append(parts.summed_to(x))
    return found


@differentiated(cumulative.cum_sum)
def _cum_sum(step: Step) -> list[Term | None]:
    return [
        step.slope.call(
            "CumSum", step.input(1), exclusive=step.attributes["exclusive"], reverse=int(not step.attributes["reverse"])
        )
    ]


@differentiated(cumulative.cum_prod)
def _cum_prod(step: Step) -> list[Term | None]:
    """The products over each element, NaN or infinite where that is zero."""
    x, axis = step.input(0), step.input(1)
    parts = step.slope * step.output(0)
    return [
        parts.call("CumSum", axis, exclusive=step.attributes["exclusive"], reverse=int(not step.attributes["reverse"]))
        / x
    ]


@differentiated(softmax.softmax)
def _softmax(step: Step) -> list[Term | None]:
    y, g, axis = step.output(0), step.slope, step.integers([step.attributes["axis"]])
    return [y * (g - (g * y).call("ReduceSum", axis))]


@differentiated(log_softmax.log_softmax)
def _log_softmax(step: Step) -> list[Term | None]:
    y, g, axis = step.output(0), step.slope, step.integers([step.attributes["axis"]])
    return [g - y.call("Exp") * g.call("ReduceSum", axis)]


without_gradient(hardmax.hardmax, arg_min_max.arg_max, arg_min_max.arg_min)


def _spread(step: Step, term: Term) -> Term:
    """A reduced tensor with the reduced dims as ones, so that it broadcasts to the input."""
    axes = step.x[1] if len(step.x) > 1 else None
    if step.attributes["keepdims"] or axes is None:
        return term
    return term.call("Unsqueeze", axes)


@differentiated(reduce.reduce_sum)
def _reduce_sum(step: Step) -> list[Term | None]:
    return [_spread(step, step.slope).call("Expand", step.input(0).shape)]


@differentiated(reduce.reduce_mean)
def _reduce_mean(step: Step) -> list[Term | None]:
    x, g = step.input(0), step.slope
    share = g.call("Size").call("CastLike", g) / x.call("Size").call("CastLike", g)
    return [_spread(step, g * share).call("Expand", x.shape)]


@differentiated(reduce.reduce_max, reduce.reduce_min)
def _reduce_extreme(step: Step) -> list[Term | None]:
    """Elements that are equally far out share the gradient."""
    x, g = step.input(0), step.slope
    hits = x.call("Equal", _spread(step, step.output(0))).call("CastLike", g)
    return [hits * _spread(step, g / step.of("ReduceSum", [hits, *step.x[1:]], **step.attributes))]


@differentiated(reduce.reduce_prod)
def _reduce_prod(step: Step) -> list[Term | None]:
    """The product over each element, NaN or infinite where that is zero."""
    return [_spread(step, step.slope * step.output(0)) / step.input(0)]


@differentiated(reduce.reduce_l1)
def _reduce_l1(step: Step) -> list[Term | None]:
    return [_spread(step, step.slope) * step.input(0).call("Sign")]


@differentiated(reduce.reduce_l2)
def _reduce_l2(step: Step) -> list[Term | None]:
    return [step.input(0) * _spread(step, step.slope / step.output(0))]


@differentiated(reduce.reduce_sum_square)
def _reduce_sum_square(step: Step) -> list[Term | None]:
    return [2 * step.input(0) * _spread(step, step.slope)]


@differentiated(reduce.reduce_log_sum)
def _reduce_log_sum(step: Step) -> list[Term | None]:
    return [_spread(step, step.slope / step.output(0).call("Exp")).call("Expand", step.input(0).shape)]


@differentiated(reduce.reduce_log_sum_exp)
def _reduce_log_sum_exp(step: Step) -> list[Term | None]:
    return [(step.input(0) - _spread(step, step.output(0))).call("Exp") * _spread(step, step.slope)]
