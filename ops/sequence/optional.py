"""Optionals: values that may be absent. One that is present is the value itself, one that is absent is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.dtype import BOOL
from ...runtime.graph import Value
from ...runtime.infer import Inference
from ...runtime.op import case, op
from ..shape.axes import refused


def wrapped(node: Inference) -> None:
    """The input, or the type that is asked for, in an optional."""
    inner = node.value(0)
    source = node.attributes["type"] if inner is None else inner
    if not isinstance(source, Value):
        node.refuse("there is neither an input nor a type")
    node.set(0, source.dtype, source.shape, container=("optional", *source.container))


@op("Optional", since=28, infer=wrapped)
def optional(value: Any = None, *, type: Any = None) -> Any:
    """The value as an optional; an absent one of a type where there is no value."""
    if value is None and type is None:
        raise refused("Optional", "there is neither an input nor a type", "E-OP-ATTRIBUTE")
    return value


def unwrapped(node: Inference) -> None:
    """What the optional holds; other values as they are."""
    value = node.value(0)
    assert value is not None
    container = value.container[1:] if value.container[:1] == ("optional",) else value.container
    node.set(0, value.dtype, value.shape, container=container)


@op("OptionalGetElement", since=28, infer=unwrapped, examples=[case("f32[2,3]"), case(["f32[2]", "f32[3]"])])
def optional_get_element(value: Any) -> Any:
    """What the optional holds; UsageError where it holds nothing."""
    if value is None:
        raise refused("OptionalGetElement", "the optional is empty", "E-OP-VALUE")
    return value


def flag(node: Inference) -> None:
    """A scalar."""
    node.set(0, BOOL, ())


@op("OptionalHasElement", since=28, infer=flag, examples=[case("f32[2,3]"), case(["f32[2]", "f32[3]"]), case()])
def optional_has_element(value: Any = None) -> np.ndarray:
    """Whether the optional holds something, a scalar; an input that is not given does not."""
    return np.array(value is not None)
