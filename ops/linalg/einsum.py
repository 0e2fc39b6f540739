"""Einsum: sums of products over indices, in Einstein's notation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.units import counted
from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import CHECK, Inference, Shape
from ..elementwise.declare import quiet
from ..rules.output_limit import allowed
from ..rules.precision import widened
from ..rules.shape_rules import broadcast, broadcast_dim

TERM = re.compile(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?")


def parsed(equation: str) -> tuple[list[str], str]:
    """Terms of the inputs and the term of the output, which is made of the indices that stand once where it is left
    out."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        counts = Counter("".join(terms).replace(".", ""))
        right = ("..." if "..." in left else "") + "".join(
            sorted(letter for letter, count in counts.items() if count == 1)
        )
    known = set(left)
    if not all(TERM.fullmatch(term) for term in (*terms, right)) or not set(right) <= known:
        raise FormatError("E-ONNX-NODE", None, f"Einsum node: {equation[:80]!r} is not a valid equation", hint=CHECK)
    return terms, right


def labelled(term: str, shape: Sequence[Dim]) -> tuple[dict[str, Dim], Shape] | None:
    """Lengths by index, and those that the dots stand for; None where the rank does not fit."""
    before, dots, behind = term.partition("...")
    rest = len(shape) - len(before) - len(behind)
    if rest < 0 or (rest and not dots):
        return None
    lengths: dict[str, Dim] = {}
    for letter, length in (*zip(before, shape, strict=False), *zip(behind, shape[len(before) + rest :], strict=False)):
        lengths[letter] = broadcast_dim(lengths.get(letter, 1), length)
    return lengths, tuple(shape[len(before) : len(before) + rest])


def summed(node: Inference) -> None:
    """Lengths of the indices of the output term."""
    terms, output = parsed(node.attributes["equation"])
    if len(terms) != len(node):
        node.fail(f"the equation has {counted(len(terms), 'term')}, there are {counted(len(node), 'input')}")
    lengths: dict[str, Dim] = {}
    stack: Shape | None = ()
    for index, term in enumerate(terms):
        shape = node.shape(index)
        if shape is None:
            stack = None if "..." in term else stack
            continue
        found = labelled(term, shape)
        if found is None:
            node.fail(f"term {term!r} does not fit an input of {counted(len(shape), 'dim')}")
        for letter, length in found[0].items():
            lengths[letter] = broadcast_dim(lengths.get(letter, 1), length)
        stack = broadcast(stack, found[1])
    before, dots, behind = output.partition("...")
    if dots and stack is None:
        node.set(0, node.dtype(0), None)
        return
    middle = (stack or ()) if dots else ()
    node.set(0, node.dtype(0), (*map(lengths.get, before), *middle, *map(lengths.get, behind)))


def _allow(terms: list[str], output: str, tensors: Sequence[np.ndarray]) -> None:
    """Refuse results that are too large to hold."""
    lengths: dict[str, Dim] = {}
    stack: Shape | None = ()
    for term, tensor in zip(terms, tensors, strict=False):
        found = labelled(term, tensor.shape)
        if found is not None:
            lengths |= {letter: broadcast_dim(lengths.get(letter, 1), length) for letter, length in found[0].items()}
            stack = broadcast(stack, found[1])
    known = [
        length
        for length in (*map(lengths.get, output.replace(".", "")), *((stack or ()) if "." in output else ()))
        if isinstance(length, int)
    ]
    allowed(known, tensors[0].dtype.itemsize, "Einsum")


@op(
    "Einsum",
    since=28,
    types="number*",
    traits=(Trait.PRODUCT,),
    infer=summed,
    examples=[
        case("f32[2,3]", "f32[3,4]", equation="ij,jk->ik"),
        case("f32[3,3]", equation="ii"),
        case("f32[2,3,4]", equation="...ij->...ji"),
        case("f32[2,3,4]", "f32[2,4,5]", equation="bij, bjk -> bik"),
        case("f32[3]", "f32[4]", equation="i,j"),
        case("f32[2,0]", equation="ij->i"),
        case("f32[2,3,4]", "f32[4,5]", equation="abC,Cd"),
        case("f32[2,3]", "f32[3,4]", "f32[4,2]", equation="ij,jk,kl->il"),
    ],
)
@quiet
@widened
def einsum(*tensors: np.ndarray, equation: str) -> np.ndarray:
    """The sum that `equation` writes; dtype of the inputs."""
    terms, output = parsed(equation)
    _allow(terms, output, tensors)
    try:
        found = np.einsum(f"{','.join(terms)}->{output}", *tensors, optimize=len(tensors) < 8)
    except ValueError as error:
        why = f"Einsum of {equation[:80]!r} does not fit its inputs: {error}"
        raise UsageError("E-OP-SHAPE", None, why, hint="Compare the shapes") from error
    return np.asarray(found).astype(tensors[0].dtype, copy=False)
