"""LabelEncoder and OneHotEncoder of numeric keys on the device, by binary search; strings run on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda, on_cpu, operators_of
from ...runtime.plan.kernel_api import Argument, Buffer
from . import map
from .category_encoder import array_of, category_mapper, fitting, label_encoder, one_hot_encoder

on_cpu("it reads or returns strings", category_mapper)
on_cpu("it reads or returns maps, which are Python objects", *operators_of(map))

PLACE = """
    value = NUMBER(get_x(x, i))
    low, high = np.int64(0), np.int64(length)
    while low < high:
        half = (low + high) // 2
        if known[half] < value or (value != value and known[half] == known[half]):
            low = half + 1
        else:
            high = half
    place = min(low, length - 1)
    if length > 0 and (known[place] == value or (known[place] != known[place] and value != value)):
        put_y(y, i, values[place])
    else:
        put_y(y, i, values[length])
"""
HOT = "y[i] = 1.0 if places[i // length] == i % length else 0.0"
LISTED = "if places[i] < 0: wrong[0] = 1"


def _looked_up(
    step: Step, x: Buffer, y: Buffer, keys: np.ndarray, values: np.ndarray, default: Any, number: type
) -> Launch:
    """As `category.looked_up`, of elements and keys as a `number`; the default follows the values."""
    known, first = np.unique(keys[::-1], return_index=True)
    held = np.append(values[::-1][first], values.dtype.type(default)).astype(
        np.float64 if values.dtype.kind == "f" else np.int64
    )
    named: dict[str, Argument] = {
        "x": x,
        "y": y,
        "length": len(known),
        "known": step.constant_buffer(np.append(known, 0).astype(number)),
        "values": step.constant_buffer(held),
    }
    return per_thread_launch("values of keys", x.count, named, PLACE.replace("NUMBER", f"np.{np.dtype(number).name}"))


@cuda(label_encoder)
def labels_on_device(step: Step) -> Planned:
    """Look labels up in tables given as lists or tensors."""
    given = step.attributes
    keys, values = (
        array_of(*(given[f"{what}_{kind}"] for kind in ("tensor", "strings", "int64s", "floats")))
        for what in ("keys", "values")
    )
    defaults = (given[f"default_{kind}"] for kind in ("float", "int64", "string", "tensor"))
    x = step.input(0)
    keys, values, default = fitting(x.dtype, keys, values, *defaults)
    whole = x.dtype.kind in "iu" and keys.dtype.kind in "iu"
    return _looked_up(step, x, step.output(), keys, values, default, np.int64 if whole else np.float64)


@cuda(one_hot_encoder)
def hot_on_device(step: Step) -> Planned:
    """Find the index of each element's category, then write its one-hot row."""
    x, y = step.input(0), step.output()
    keys = np.array(step.attributes["cats_int64s"] or [], np.int64)
    places = step.temporary(np.int64, x.shape)
    launches: list[Any] = [_looked_up(step, x, places, keys, np.arange(len(keys)), -1, np.int64)]
    if not step.attributes["zeros"]:
        wrong = step.flag("OneHotEncoder: an element is not one of the categories")
        launches.append(
            per_thread_launch("elements of no category", x.count, {"places": places, "wrong": wrong}, LISTED)
        )
    return [
        *launches,
        per_thread_launch("ones and zeros", y.count, {"y": y, "places": places, "length": len(keys)}, HOT),
    ]
