"""Optional values: an optional with a value is the value itself, an empty one is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.ir.graph import Value
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import BOOL
from ..rules.axes import input_error


def infer_optional(node: Inference) -> None:
    """The input, or the type that is asked for, in an optional."""
    inner = node.value(0)
    source = node.attributes["type"] if inner is None else inner
    if not isinstance(source, Value):
        node.fail("there is neither an input nor a type")
    node.set(0, source.dtype, source.shape, container=("optional", *source.container))


@op("Optional", since=28, types="any+sequence", infer=infer_optional)
def optional(value: Any = None, *, type: Any = None) -> Any:
    """The value as an optional; an empty one of a type without a value."""
    if value is None and type is None:
        raise input_error("Optional", "there is neither an input nor a type", "E-OP-ATTRIBUTE")
    return value


def infer_optional_get_element(node: Inference) -> None:
    """The type of the optional's element; other values unchanged."""
    value = node.value(0)
    assert value is not None
    container = value.container[1:] if value.container[:1] == ("optional",) else value.container
    node.set(0, value.dtype, value.shape, container=container)


@op(
    "OptionalGetElement",
    since=28,
    types="any+optional+sequence",
    infer=infer_optional_get_element,
    examples=[case("f32[2,3]"), case(["f32[2]", "f32[3]"])],
)
def optional_get_element(value: Any) -> Any:
    """The element of an optional; UsageError if it is empty."""
    if value is None:
        raise input_error("OptionalGetElement", "the optional is empty", "E-OP-VALUE")
    return value


def infer_optional_has_element(node: Inference) -> None:
    """A scalar."""
    node.set(0, BOOL, ())


@op(
    "OptionalHasElement",
    since=28,
    types="any+optional+sequence",
    infer=infer_optional_has_element,
    examples=[case("f32[2,3]"), case(["f32[2]", "f32[3]"]), case()],
)
def optional_has_element(value: Any = None) -> np.ndarray:
    """Whether the optional holds something, a scalar; an input that is not given does not."""
    return np.array(value is not None)
