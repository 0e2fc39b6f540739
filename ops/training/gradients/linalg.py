"""Gradients of matrix products, Einsum, cumulative sums and reductions."""

from __future__ import annotations

import string

import numpy as np

from ....runtime.ir.domain import CANDLE
from ....runtime.ir.op import Undecomposable
from ....runtime.tensor.dtype import C128, F64, BlockType
from ...linalg import det, einsum, gemm, linear, linear_transposed, matmul
from ...nn import hardmax, log_softmax, softmax
from ...reduce import arg_min_max, cumulative, reduce
from ...rules.expression import Term
from ..gradient_rule import Step, differentiated, without_gradient


@differentiated(matmul.matmul)
def _matmul(step: Step) -> list[Term | None]:
    a, b, g = step.input(0), step.input(1), step.grad
    if min(a.rank or 0, b.rank or 0) > 1:
        return [_by_left(a, b, g), _by_right(a, b, g)]
    left, middle, right = {
        (True, True): ("k", "k", ""),
        (True, False): ("k", "...kn", "...n"),
        (False, True): ("...mk", "k", "...m"),
    }.get((a.rank == 1, b.rank == 1), ("...mk", "...kn", "...mn"))
    by_a = step.of("Einsum", [g, b], equation=f"{right},{middle}->{_stacked(left, middle)}")
    by_b = step.of("Einsum", [a, g], equation=f"{left},{right}->{_stacked(middle, left)}")
    return [by_a.summed_to(a), by_b.summed_to(b)]


def _by_left(a: Term, b: Term, g: Term) -> Term:
    if b.rank == 2:
        return _matrix(g).call("Gemm", b, transB=1).like(a)
    return g.call("MatMul", _swapped(b)).summed_to(a)


def _by_right(a: Term, b: Term, g: Term) -> Term:
    """A matrix that all of a stack were multiplied with has the sum of the products, which is one product."""
    if b.rank == 2:
        return _matrix(a).call("Gemm", _matrix(g), transA=1)
    return _swapped(a).call("MatMul", g).summed_to(b)


def _matrix(x: Term) -> Term:
    """A stack of matrices as one."""
    return x if x.rank == 2 else x.call("Flatten", axis=-1)


def _swapped(x: Term) -> Term:
    """Matrices with rows and columns swapped."""
    return x.transposed([*range(x.axes - 2), x.axes - 1, x.axes - 2])


@differentiated(linear.linear)
def _linear(step: Step) -> list[Term | None]:
    """Weights stored in blocks get no gradient and stay in blocks."""
    x, weight, g = step.input(0), step.input(1), step.grad
    by_bias = g.summed_to(step.input(2)) if len(step.x) > 2 and step.x[2] is not None else None
    by_x = g.calls("LinearTransposed", weight, domain=CANDLE)[0]
    if isinstance(weight.value.dtype, BlockType):
        return [by_x, None, by_bias]
    return [by_x, _matrix(g).call("Gemm", _matrix(x), transA=1), by_bias]


@differentiated(linear_transposed.linear_transposed)
def _linear_transposed(step: Step) -> list[Term | None]:
    x, weight, g = step.input(0), step.input(1), step.grad
    by_x = g.calls("Linear", weight, domain=CANDLE)[0]
    if isinstance(weight.value.dtype, BlockType):
        return [by_x]
    return [by_x, _matrix(x).call("Gemm", _matrix(g), transA=1)]


def _stacked(term: str, other: str) -> str:
    """The term of a vector with the stack that it was multiplied with."""
    return term if "..." in term or "..." not in other else f"...{term}"


@differentiated(gemm.gemm)
def _gemm(step: Step) -> list[Term | None]:
    a, b, c = (*step.x, None)[:3]
    assert a is not None
    assert b is not None
    g, alpha, transposed_a, transposed_b = (
        step.grad,
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
    """The gradient replaces an operand; a tensor of ones in its shape carries the indices that only it
    has."""
    terms, output = einsum.parsed(step.attributes["equation"])
    found: list[Term | None] = []
    for index, (term, x) in enumerate(zip(terms, step.x, strict=True)):
        assert x is not None
        others = [
            (name, other) for position, (name, other) in enumerate(zip(terms, step.x, strict=True)) if position != index
        ]
        names = [output, *(name for name, _ in others), term]
        once = "".join(dict.fromkeys(term.replace("...", ".")))
        whole = once.replace(".", "...") if "." in once or not any("..." in name for name in names) else f"...{once}"
        parts = step.of(
            "Einsum", [step.grad, *(other for _, other in others), x.filled(1)], equation=f"{','.join(names)}->{whole}"
        )
        found.append(_along_diagonals(step, parts, whole, term, x).summed_to(x))
    return found


def _along_diagonals(step: Step, parts: Term, whole: str, term: str, x: Term) -> Term:
    """Gradients with an axis for each index, on the diagonals of a term that has an index several times."""
    letters = term.replace("...", "")
    unused = iter(sorted(set(string.ascii_letters) - set(letters)))
    inputs, names, made = [parts], [whole], ""
    for index, letter in enumerate(letters):
        first = letter not in letters[:index]
        made += letter if first else next(unused)
        if not first:
            axis = index - len(letters)
            places = step.integers(0).call("Range", x.length(axis).scalar, step.integers(1))
            same = places.call("Equal", places.call("Unsqueeze", step.integers([1])))
            inputs.append(same.call("CastLike", parts))
            names.append(letter + made[-1])
    if len(inputs) == 1:
        return parts
    ahead = "..." if "..." in whole else ""
    if "..." in term and not term.startswith("..."):
        raise Undecomposable("an ellipsis stands behind an index that is there twice")
    return step.of("Einsum", inputs, equation=f"{','.join(names)}->{ahead}{made}")


MAX_DET = 16
"""Rows of matrices whose adjugate the traces of powers give with enough digits."""


@differentiated(det.det)
def _det(step: Step) -> list[Term | None]:
    """The transposed adjugate, by Faddeev and LeVerrier in f64: it exists for singular matrices, too."""
    x, g = step.input(0), step.grad
    size = x.lengths[-1]
    if size > MAX_DET:
        raise Undecomposable(f"of matrices of {size} rows, more than {MAX_DET}")
    wide = x.cast(C128 if x.dtype.kind == "complex" else F64)
    eye = wide.constant(np.eye(size), wide.dtype.as_numpy())
    adjugate = eye.call("Expand", wide.shape)
    for power in range(1, size):
        product = wide.call("MatMul", adjugate)
        trace = (product * eye).call("ReduceSum", step.integers([-2, -1]))
        adjugate = product - eye * (trace / power)
    sign = 1.0 if size % 2 else -1.0
    back = (adjugate * sign).call("CastLike", x)
    return [
        g.call("Unsqueeze", step.integers([-2, -1])) * back.transposed([*range(x.axes - 2), x.axes - 1, x.axes - 2])
    ]


@differentiated(cumulative.cum_sum)
def _cum_sum(step: Step) -> list[Term | None]:
    return [
        step.grad.call(
            "CumSum", step.input(1), exclusive=step.attributes["exclusive"], reverse=int(not step.attributes["reverse"])
        )
    ]


@differentiated(cumulative.cum_prod)
def _cum_prod(step: Step) -> list[Term | None]:
    """The product before an element, times the sum of the gradients after it, each times what lies in between.

    These sums S[k] = g[k] + a[k] * S[k + 1] are found in log2(length) steps, in which no element is divided by.
    """
    x, g, exclusive = step.input(0), step.grad, step.attributes["exclusive"]
    try:
        axis, lengths = step.known(1), x.lengths
    except Undecomposable:
        return [_by_division(step)]
    assert axis is not None
    along = int(axis.reshape(())) % len(lengths)
    count = lengths[along]
    if step.attributes["reverse"]:
        x, g = (term.part(along, -1, -count - 1, -1) for term in (x, g))
    factor = x if exclusive else _moved_on(x, along, 1, 1)
    sums, distance = g, 1
    while distance < count:
        sums = sums + factor * _moved_on(sums, along, distance, 0)
        factor = factor * _moved_on(factor, along, distance, 1)
        distance *= 2
    if exclusive:
        sums = _moved_on(sums, along, 1, 0)
    found = x.call("CumProd", step.integers(along), exclusive=1) * sums
    return [found.part(along, -1, -count - 1, -1) if step.attributes["reverse"] else found]


def _by_division(step: Step) -> Term:
    """The gradient of CumProd along an axis that is known only at run time: the sum of what gradients and products give
    after an element, over the element. The first 0 of a row is left out of its products instead; after the second one
    they are 0."""
    x, axis, reverse = step.input(0), step.input(1), step.attributes["reverse"]
    is_zero = x.call("Equal", x.number(0))
    is_first = is_zero.call(
        "And", is_zero.call("CastLike", x).call("CumSum", axis, reverse=reverse).call("Less", x.number(1.5))
    )

    def behind(products: Term) -> Term:
        flags = {"exclusive": step.attributes["exclusive"], "reverse": int(not reverse)}
        return (step.grad * products).call("CumSum", axis, **flags)

    without = is_first.where(1, x).call("CumProd", axis, exclusive=step.attributes["exclusive"], reverse=reverse)
    whole = behind(step.output(0)) / is_zero.where(1, x)
    return is_first.where(behind(without), is_zero.where(0, whole))


def _moved_on(term: Term, axis: int, distance: int, fill: float) -> Term:
    """The elements so much further along an axis, numbers after the end."""
    start = term.part(axis, 0, distance)
    return term.part(axis, distance, term.lengths[axis]).call("Concat", start.filled(fill), axis=axis)


@differentiated(softmax.softmax)
def _softmax(step: Step) -> list[Term | None]:
    y, g, axis = step.output(0), step.grad, step.integers([step.attributes["axis"]])
    return [y * (g - (g * y).call("ReduceSum", axis))]


@differentiated(log_softmax.log_softmax)
def _log_softmax(step: Step) -> list[Term | None]:
    y, g, axis = step.output(0), step.grad, step.integers([step.attributes["axis"]])
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
    return [_spread(step, step.grad).call("Expand", step.input(0).shape)]


@differentiated(reduce.reduce_mean)
def _reduce_mean(step: Step) -> list[Term | None]:
    x, g = step.input(0), step.grad
    share = g.call("Size").call("CastLike", g) / x.call("Size").call("CastLike", g)
    return [_spread(step, g * share).call("Expand", x.shape)]


@differentiated(reduce.reduce_max, reduce.reduce_min)
def _reduce_extreme(step: Step) -> list[Term | None]:
    """Elements that are equally far out share the gradient."""
    x, g = step.input(0), step.grad
    hits = x.call("Equal", _spread(step, step.output(0))).call("CastLike", g)
    return [hits * _spread(step, g / step.of("ReduceSum", [hits, *step.x[1:]], **step.attributes))]


@differentiated(reduce.reduce_prod)
def _reduce_prod(step: Step) -> list[Term | None]:
    """The product of the elements before each one and of those after it, which needs no division."""
    x, g = step.input(0), _spread(step, step.grad)
    try:
        axes, rank = step.known(1), x.axes
    except Undecomposable:
        return [g * _others(step)]
    chosen = sorted(int(axis) % rank for axis in axes.reshape(-1)) if axes is not None and axes.size else None
    if chosen is None:
        chosen = [] if step.attributes["noop_with_empty_axes"] else list(range(rank))
    order = [axis for axis in range(rank) if axis not in chosen] + chosen
    moved, last = x.transposed(order), step.integers(rank - len(chosen))
    kept = moved.call("Shape", end=rank - len(chosen)) if len(chosen) < rank else None
    rest = step.integers([-1]) if kept is None else step.of("Concat", [kept, _count(moved, rank - len(chosen))], axis=0)
    flat = moved.call("Reshape", rest)
    others = flat.call("CumProd", last, exclusive=1) * flat.call("CumProd", last, exclusive=1, reverse=1)
    back = [order.index(axis) for axis in range(rank)]
    return [g * others.call("Reshape", moved.shape).transposed(back)]


def _others(step: Step) -> Term:
    """The product of all other elements, where axes are known only at run time; a 0 has one if it is the only one."""
    x, further = step.input(0), step.x[1:]
    kept = {"keepdims": 1, "noop_with_empty_axes": step.attributes["noop_with_empty_axes"]}
    is_zero = x.call("Equal", x.number(0))
    filled = is_zero.where(1, x)
    zeros = step.of("ReduceSum", [is_zero.call("CastLike", x), *further], **kept)
    product = step.of("ReduceProd", [filled, *further], **kept)
    alone = zeros.call("Less", x.number(1.5)).where(product, 0)
    return is_zero.where(alone, zeros.call("Less", x.number(0.5)).where(product / filled, 0))


def _count(x: Term, start: int) -> Term:
    """How many elements the axes from one on have, as a tensor of one element."""
    return x.call("Shape", start=start).call("ReduceProd", keepdims=1)


@differentiated(reduce.reduce_l1)
def _reduce_l1(step: Step) -> list[Term | None]:
    return [_spread(step, step.grad) * step.input(0).call("Sign")]


@differentiated(reduce.reduce_l2)
def _reduce_l2(step: Step) -> list[Term | None]:
    """Zero where the norm is."""
    norm = step.output(0)
    return [step.input(0) * _spread(step, step.grad * (norm > 0).where(1 / norm, 0))]


@differentiated(reduce.reduce_sum_square)
def _reduce_sum_square(step: Step) -> list[Term | None]:
    return [2 * step.input(0) * _spread(step, step.grad)]


@differentiated(reduce.reduce_log_sum)
def _reduce_log_sum(step: Step) -> list[Term | None]:
    return [_spread(step, step.grad / step.output(0).call("Exp")).call("Expand", step.input(0).shape)]


@differentiated(reduce.reduce_log_sum_exp)
def _reduce_log_sum_exp(step: Step) -> list[Term | None]:
    return [(step.input(0) - _spread(step, step.output(0))).call("Exp") * _spread(step, step.grad)]
