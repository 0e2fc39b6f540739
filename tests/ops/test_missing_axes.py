"""An axis that a tensor does not have is refused by every operator that reads one, in NumPy and by kernels."""

import candle_convert as cc
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model

WITHOUT = ("QuantizeLinear", "DequantizeLinear")
"""Operators that read no axis where a tensor has one scale, as the standard says."""
READERS = [
    (operator, name)
    for key, operator in operators().items()
    if key[0] != "candle" and operator.examples and operator.name not in WITHOUT
    for name in {**operator.defaults, **operator.examples[0].attributes}
    if name.endswith("axis")
]


@pytest.mark.parametrize("axis", [-1000, 1000])
@pytest.mark.parametrize(("operator", "name"), READERS, ids=lambda item: getattr(item, "name", item))
def test_axes_that_do_not_exist(operator, name, axis):
    example = operator.examples[0]
    made, feeds = model(operator, Example(example.inputs, {**example.attributes, name: axis}, example.outputs))
    for native in (False, True):
        with pytest.raises(cc.Error) as caught:
            Session(graph_of(made), 1, native=native, simplify=native).run(None, feeds)
        assert caught.value.exit_code in (2, 3, 4)
        assert "cannot be computed" not in str(caught.value)
