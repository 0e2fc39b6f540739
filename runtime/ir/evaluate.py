"""Evaluation of one node by its operator's NumPy reference, with errors that describe the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.errors import Error, LimitError, UsageError
from ..tensor.weight_array import as_array, loaded
from .graph import Node
from .op import Op
from .shape_inference import CHECK, MALFORMED

HINT = "Compare shapes and values with the operator's definition; if they fit, please report it"
FEED_HINT = "Give inputs of lengths that the model takes; if they are, candle-convert check lists what is wrong with it"


def input_decoder(op: Op) -> Callable[[Any], Any]:
    """Converts inputs for the NumPy reference of an operator: blocks as stored, or dequantized."""
    return loaded if op.stored else as_array


def compute_node(node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Compute a node's outputs from arrays.

    Raises:
        UsageError: the shapes or values of the inputs do not fit the operator.
        LimitError: the operator needs more memory than is available.
    """
    assert node.op.compute is not None
    try:
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
