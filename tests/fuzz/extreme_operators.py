"""Examples of operators with extreme attributes, values and shapes, through import, inference, simplification, planning
and a run."""

from __future__ import annotations

import random
import sys
import time
import traceback
import warnings
from typing import Any

import candle_convert as cc
import numpy as np
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import arrays, model
from candle_convert.tests.fuzz.protobuf import EXTREME, FLOATS

MEMORY = "64MiB"
"""What a run may take: more is refused, and nothing near it is taken before that."""
SECONDS = 5
"""Processor seconds that an attempt may take; most take a hundredth of one."""
WORDS = ("", "x", "NONE", "a" * 1000)
KEYS = [key for key, operator in operators().items() if operator.examples and key[0] != "candle"]


def attempt(first: str, stop: str, seed: str, count: str, how: str = "numpy") -> int:
    """Try changed examples of some operators; 70 when one ends in anything but a result or an error of ours, or takes
    long.

    Args:
        first, stop: places of operators in `KEYS`; seed, count: of the first example and how many; how: numpy or
            native.
    """
    warnings.simplefilter("ignore")
    tried = [
        (key, number) for key in KEYS[int(first) : int(stop)] for number in range(int(seed), int(seed) + int(count))
    ]
    failures = sum(not _ends_well(key, number, how) for key, number in tried)
    return 70 if failures else 0


def _ends_well(key: tuple[str, str], number: int, how: str) -> bool:
    operator, draw = operators()[key], random.Random(f"{key} {number}")
    with np.errstate(all="ignore"):
        example, changes = changed(operator, draw.choice(operator.examples), draw)
        made, feeds = model(operator, example, constant=draw.random() < 0.5)
    began, foreign = time.process_time(), ""
    try:
        with cc.limits(memory=MEMORY):
            graph = graph_of(made)
            infer(graph)
            Session(graph, threads=1, native=how == "native", simplify=True).run(None, feeds)
    except cc.Error as error:
        foreign = "" if error.exit_code in (2, 3, 4, 6) else str(error)
    except Exception:
        foreign = traceback.format_exc()
    taken = time.process_time() - began
    if foreign or (taken > SECONDS and how == "numpy"):
        print(f"{key}, example {number}, {changes}: {taken:.1f} s\n{foreign[-1500:]}", file=sys.stderr)
        return False
    return True


def changed(operator: Any, example: Example, draw: random.Random) -> tuple[Example, list[Any]]:
    """The example with one to three changes, and what they are."""
    values = [value.copy() if isinstance(value, np.ndarray) else value for value in arrays(example)]
    attributes = {
        **{name: value for name, value in operator.defaults.items() if isinstance(value, int | float | str)},
        **example.attributes,
    }
    changes = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places: list[Any] = [
            name for name, value in attributes.items() if isinstance(value, int | float | str | list | tuple)
        ]
        for index, value in enumerate(values):
            if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
                places += [index] * (4 if value.dtype.kind in "iu" else 1)
        if not places:
            break
        place = draw.choice(places)
        if isinstance(place, str):
            attributes[place] = _attribute(attributes[place], draw)
            changes.append((place, repr(attributes[place])[:80]))
        else:
            values[place] = _array(values[place], draw)
            changes.append((place, repr(values[place])[:80]))
    return Example(tuple(values), attributes, example.outputs), changes


def _attribute(value: Any, draw: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, int):
        return draw.choice(EXTREME)
    if isinstance(value, float):
        return draw.choice(FLOATS)
    if isinstance(value, str):
        return draw.choice((*WORDS, value[:-1]))
    items = list(value)
    kind = items[0] if items else 0
    how = draw.randrange(5)
    if how == 0:
        return [_attribute(kind, draw)] * len(items)
    if how == 1 and len(items) > 1:
        return items[:-1]
    if how == 2 or not items:
        return [*items, _attribute(kind, draw)]
    items[draw.randrange(len(items))] = _attribute(kind, draw)
    return items


def _array(array: np.ndarray, draw: random.Random) -> np.ndarray:
    """Extreme elements, or another shape."""
    if draw.random() < 0.25:
        return _reshaped(array, draw)
    if not array.size:
        return array
    wide = (
        np.asarray(draw.choice(FLOATS), np.float64)
        if array.dtype.kind == "f"
        else np.asarray(draw.choice(EXTREME) % 2**64, np.uint64)
    )
    extreme = wide.astype(array.dtype)
    if draw.random() < 0.3:
        return np.full_like(array, extreme)
    array.reshape(-1)[draw.randrange(array.size)] = extreme
    return array


def _reshaped(array: np.ndarray, draw: random.Random) -> np.ndarray:
    how = draw.randrange(6)
    if how == 0:
        return array[np.newaxis]
    if how == 1:
        return array.reshape(-1)
    if how == 2:
        return array.reshape(-1)[:0]
    if how == 3 and array.size:
        return np.asarray(array.reshape(-1)[0], array.dtype)
    if not array.ndim:
        return array
    axis = draw.randrange(array.ndim)
    return np.concatenate([array, array], axis) if how == 4 else array.take(range(max(0, array.shape[axis] - 1)), axis)
