"""Every device kernel compiles to PTX, for four generations of cards; needs numba-cuda with its toolkit, and no card."""

import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

import candle_convert.formats.containers.onnx_graph as onnx_graph
from candle_convert.ops.quants.device import elements
from candle_convert.runtime.cuda import place
from candle_convert.runtime.cuda.kernel import Launch, signature
from candle_convert.runtime.cuda.machine import SIMULATED
from candle_convert.runtime.cuda.planner import Planner
from candle_convert.runtime.cuda.program import Program, described, weights_of
from candle_convert.runtime.op import Example
from candle_convert.runtime.passes.linear import UseLinear
from candle_convert.runtime.registry import operators
from candle_convert.runtime.upgrade import upgrade
from single_node import model

sys.path.insert(0, str(Path(__file__).parent))

from quantized_on_device import chosen, few, linear, taken, weight

FULL = os.environ.get("CANDLE_FULL") == "1"
SAMPLE = 48
"""Of the kernels one in so many is compiled unless CANDLE_FULL=1."""
NEWEST = (12, 1)
CHIPS = [(7, 5), (8, 0), (9, 0), NEWEST]

pytestmark = [pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing"), pytest.mark.timeout(3600 if FULL else 300)]


@cache
def kernels():
    """Every kernel that the examples of all operators launch, with the types of its arguments."""
    place.kernels()
    found = {}
    for operator in operators().values():
        if place.placed(operator) is None:
            for index, example in enumerate(operator.examples):
                collect(operator, example, found)
                if index == 0 and operator.scalar is not None:
                    collect(operator, halved(example, "f16"), found)
                    collect(operator, halved(example, "bf16"), found)
    for name in elements():
        for form, decided in ((linear, ((1, "f32"), (8, "f32"), (2, "q8"), (8, "q8"))), (taken, ((2, "f32"),))):
            for rows, activations in decided:
                graph = form(few(name)[0])
                UseLinear(activations).run(graph)
                shape = (rows, *graph.inputs[0].shape[1:])
                gather(graph, {graph.inputs[0].name: np.zeros(shape, graph.inputs[0].dtype.as_numpy())}, found)
    gather(chosen(weight("q4_k", (3, 4, 256))[0]), {"x": np.zeros((2, 256), np.float32), "ids": np.zeros((2, 2), np.int64)}, found)
    return list(found.values())


def halved(example, name):
    """An example whose made-up floats are of half precision."""
    inputs = tuple(item.replace("f32", name) if isinstance(item, str) else item for item in example.inputs)
    return Example(inputs, example.attributes, example.outputs)


def collect(operator, example, found):
    made, feeds = model(operator, example)
    gather(onnx_graph.graph_of(made), feeds, found)


def gather(graph, feeds, found):
    """The kernels of a plan for these inputs."""
    upgrade(graph)
    program = Program(graph.nodes, graph.inputs, graph.outputs, weights_of(graph), None, {})
    values = [(feeds.get(value.name), decides) for value, decides in zip(graph.inputs, program.decides, strict=True)]
    plan = Planner(program, [described(*pair) for pair in values], frozenset()).made()
    for step in plan.steps:
        if isinstance(step, Launch):
            key = signature(step.arguments)
            found.setdefault((step.kernel.function.__module__, key), (step.kernel, key))


def test_there_are_kernels():
    assert len(kernels()) > 500


@pytest.mark.parametrize("cc", CHIPS, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
def test_kernels_compile(cc):
    chosen = kernels() if FULL else kernels()[CHIPS.index(cc) :: SAMPLE]
    for kernel, kinds in chosen:
        if kernel.least > cc:
            continue
        text = kernel.ptx(kinds, cc)
        assert f".target sm_{cc[0]}{cc[1]}" in text, kernel
        assert ".entry" in text, kernel
