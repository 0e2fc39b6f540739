"""Operators compute empty and non-finite inputs without NumPy's warnings, which users would see on standard error."""

import re
import warnings
from dataclasses import replace

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.base.errors import Error
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import arrays, model

CASES = [
    pytest.param(operator, id=f"{operator.domain}{'.' if operator.domain else ''}{operator.name}")
    for operator in operators().values()
    if operator.examples
]
ODD = np.array([np.nan, np.inf, -np.inf, 0, 3e38, -3e38], np.float32)


def emptied(text, axis):
    dims = re.search(r"\[(.*)\]", text)[1].split(",")
    dims[axis] = "0"
    return f"{text.partition('[')[0]}[{','.join(dims)}]"


def variants(example):
    """Examples with an input without elements, and with values that are not finite."""
    first = example.inputs[0] if example.inputs else None
    if isinstance(first, str) and not first.startswith("string"):
        dims = [dim for dim in re.search(r"\[(.*)\]", first)[1].split(",") if dim]
        for axis in range(len(dims)):
            same = [emptied(item, axis) if isinstance(item, str) and item == first else item for item in example.inputs]
            yield replace(example, inputs=tuple(same))
    values = arrays(example)
    if any(isinstance(value, np.ndarray) and value.dtype == np.float32 for value in values):
        yield replace(
            example,
            inputs=tuple(
                np.resize(ODD, value.shape) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value
                for value in values
            ),
        )


@pytest.mark.parametrize("operator", CASES)
def test_no_warning_of_numpy(operator):
    for example in operator.examples:
        for odd in variants(example):
            try:
                made, feeds = model(operator, odd)
                session = Session(onnx_graph.graph_of(made))
            except (Error, ValueError, TypeError, KeyError, IndexError):
                continue  # such a node is not valid
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                try:
                    session.run(None, feeds)
                except Error:
                    continue
