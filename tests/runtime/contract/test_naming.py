"""Templates of module names: read, filled, and rows of weights by convention."""

import pytest
from candle_convert.runtime.contract.architecture import GGUF, GRAPH, HF, TIMM, Architecture
from candle_convert.runtime.contract.naming import Module, bound_to, filled

BLOCK = Module("layer{s+1}.{b}.conv{k+1}", hf="stages.{s}.blocks.{b}.layer.{k}.convolution")


@pytest.mark.parametrize(
    ("convention", "name", "found"),
    [
        (TIMM, "layer2.0.conv3.weight", ({"s": 1, "b": 0, "k": 2}, ".weight")),
        (HF, "stages.1.blocks.0.layer.2.convolution.weight", ({"s": 1, "b": 0, "k": 2}, ".weight")),
        (TIMM, "layer0.0.conv1.weight", None),
        (TIMM, "layer2.0.conv3", ({"s": 1, "b": 0, "k": 2}, "")),
        (TIMM, "layer2.0.conv3weight", None),
        (TIMM, "layer2.0.conv99999.weight", None),
        (HF, "layer2.0.conv3.weight", None),
    ],
)
def test_indices_of_a_name(convention, name, found):
    assert BLOCK.read(convention, name) == found


def test_a_field_that_occurs_twice_has_one_value():
    part = Module("a.{i}", hf="x.{i}.y.{i}")
    assert part.read(HF, "x.3.y.3.bias") == ({"i": 3}, ".bias")
    assert part.read(HF, "x.3.y.4.bias") is None


def test_filling_is_the_inverse_of_reading():
    assert filled(BLOCK.name, {"s": 1, "b": 0, "k": 2}) == "layer2.0.conv3"


def test_rows_of_the_weights_of_a_file():
    architecture = Architecture("x", "X", (), (), (), (), (), prefixes=("x.",), modules=(BLOCK, Module("head", hf=())))
    bound = bound_to(architecture, TIMM, ["layer1.0.conv1.weight", "head.bias", "other.weight"])
    first, second = bound.weights
    assert [first.stored(names)[0].names for names in (HF, TIMM, GGUF, GRAPH)] == [
        ("stages.0.blocks.0.layer.0.convolution.weight",),
        *[("layer1.0.conv1.weight",)] * 3,
    ]
    assert (second.name, second.stored(HF)) == ("head.bias", ())


def test_prefixes_may_be_there():
    architecture = Architecture("x", "X", (), (), (), (), (), prefixes=("x.",), modules=(BLOCK,))
    for name in ("x.stages.0.blocks.1.layer.0.convolution.weight", "stages.0.blocks.1.layer.0.convolution.weight"):
        assert [row.name for row in bound_to(architecture, HF, [name]).weights] == ["layer1.1.conv1.weight"]
