"""Loops and branches by Keras' names, run as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....tensors.core.tensor import Tensor
from .operation import ours, tensor_of

__all__ = ["cond", "fori_loop", "map", "scan", "switch", "vectorized_map", "while_loop"]


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """What the first function gives where `pred` is true, and the second else."""
    return true_fn() if bool(tensor_of(pred)) else false_fn()


def switch(index: Any, branches: Any, *operands: Any) -> Any:
    """What the function of an index gives."""
    number = min(max(int(tensor_of(index)), 0), len(branches) - 1)
    return branches[number](*operands)


def while_loop(
    cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, maximum_iterations: int | None = None
) -> Any:
    """Call `body` with what it gave before, while `cond` is true."""
    is_one = not isinstance(loop_vars, list | tuple)
    values: Any = (loop_vars,) if is_one else tuple(loop_vars)
    count = 0
    while (maximum_iterations is None or count < maximum_iterations) and bool(tensor_of(cond(*values))):
        following = body(*values)
        values = tuple(following) if isinstance(following, list | tuple) else (following,)
        count += 1
    return values[0] if is_one else values


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[int, Any], Any], init_val: Any) -> Any:
    """Call `body_fun` with each number from `lower` to before `upper`, and with what it gave before."""
    for number in range(int(lower), int(upper)):
        init_val = body_fun(number, init_val)
    return init_val


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: int | None = None,
    reverse: bool = False, unroll: Any = 1,
) -> Any:  # fmt: skip
    """Carry a value through `f` over the first axis; the last value, and the outputs along an axis."""
    items = None if xs is None else tensor_of(xs)
    count = len(items) if items is not None else length or 0
    order = range(count)
    outputs: list[Any] = []
    for number in reversed(order) if reverse else order:
        init, output = f(init, None if items is None else items[number])
        outputs.append(output)
    outputs = outputs[::-1] if reverse else outputs
    return init, None if not outputs or outputs[0] is None else ours("stack")([tensor_of(each) for each in outputs])


def map(f: Callable[[Any], Any], xs: Any) -> Tensor:
    """What a function gives for each item along the first axis."""
    return ours("stack")([tensor_of(f(each)) for each in tensor_of(xs)])


def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Tensor:
    """`map`; `elements` may be a list of tensors, of which the function gets one item each."""
    if isinstance(elements, list | tuple):
        tensors = [tensor_of(each) for each in elements]
        return ours("stack")([tensor_of(function(list(each))) for each in zip(*tensors, strict=True)])
    return map(function, elements)
