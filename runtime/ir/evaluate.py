"""Evaluation of one node by its operator's NumPy reference, with errors that describe the inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.errors import Error, LimitError, UsageError
from ..tensor.weight_array import as_array, loaded
from .call import Call
from .graph import Graph, Node, Value
from .op import Op
from .shape_inference import CHECK, MALFORMED

HINT = "Compare shapes and values with the operator's definition; if they fit, please report it"
FEED_HINT = "Give inputs of lengths that the model takes; if they are, candle-convert check lists what is wrong with it"


def input_decoder(op: Op) -> Callable[[Any], Any]:
    """Converts inputs for the NumPy reference of an operator: blocks as stored, or dequantized."""
    return loaded if op.stored else as_array


def compute_node(node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Compute a node's outputs from arrays. Infinity and NaN are results, of which NumPy does not warn.

    Raises:
        UsageError: the shapes or values of the inputs do not fit the operator.
        LimitError: the operator needs more memory than is available.
    """
    assert node.op.compute is not None
    try:
        with np.errstate(all="ignore"):
            return node.op.compute(*inputs, **attributes)
    except Error as error:
        locate(error, node, inputs)
        raise
    except MemoryError as error:
        why = f"{node.op.name} {_name(node)!r} needs more memory than there is for {_given(inputs)} ({error})"
        raise LimitError(
            "E-RUN-MEMORY", None, why, hint="Feed smaller inputs, or use a machine with more memory"
        ) from error
    except MALFORMED as error:
        why = (
            f"{node.op.name} {_name(node)!r} cannot be computed from {_given(inputs)} ({type(error).__name__}: {error})"
        )
        raise UsageError("E-OP-INPUTS", None, why, hint=HINT) from error


def evaluate_node(
    node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any], run: Callable[[Graph, Sequence[Any]], list[Any]]
) -> list[tuple[Value, Any]]:
    """Each output of a node with its result, from inputs as they are stored; `run` runs its subgraphs."""
    take = input_decoder(node.op)
    if node.op.asks:
        attributes = {**attributes, "call": Call(node, used_outputs(node), run)}
    return by_output(node, compute_node(node, [None if item is None else take(item) for item in inputs], attributes))


def used_outputs(node: Node) -> tuple[bool, ...]:
    """For each output of a node, whether it is used."""
    return tuple(bool(value.name) for value in node.outputs)


def by_output(node: Node, results: Any) -> list[tuple[Value, Any]]:
    """Each output of a node with what `compute` returned for it."""
    return list(zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=False))


def as_value(result: Any) -> Any:
    """A value of a run: scalars become arrays."""
    return result if result is None or isinstance(result, list | dict | np.ndarray) else np.asarray(result)


def owned(result: Any, shared: Collection[Any]) -> Any:
    """A result on the host that shares no memory with inputs, weights or an arena; `shared`: arrays to copy."""
    result = as_array(result)
    if isinstance(result, list):
        return [owned(item, shared) for item in result]
    if not isinstance(result, np.ndarray):
        return result
    return result.copy() if result.base is not None or any(result is array for array in shared) else result


def locate(error: Error, node: Node, inputs: Sequence[Any]) -> None:
    """Add the innermost node and its inputs (arrays, or values with shapes) to an operator's error message."""
    if error.node is None and error.code.startswith("E-OP-"):
        error.node = _name(node)
        error.why = f"{error.why}, in {node.op.name} {error.node!r} of {_given(inputs)}"
        error.hint = FEED_HINT if error.hint == CHECK else error.hint


def _name(node: Node) -> str:
    return node.name or next((value.name for value in node.outputs if value.name), "")


def _given(inputs: Sequence[Any]) -> str:
    return ", ".join(_described(item) for item in inputs) or "nothing"


def _described(item: Any) -> str:
    if item is None:
        return "nothing"
    if not hasattr(item, "shape") or not hasattr(item, "dtype"):
        return type(item).__name__
    return f"{item.dtype}{'' if item.shape is None else list(item.shape)}"
