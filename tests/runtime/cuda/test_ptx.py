"""Every device kernel compiles to PTX, for four generations of cards; needs numba-cuda with its toolkit, and no card."""

import os
from functools import cache

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

import candle_convert.formats.containers.onnx_graph as onnx_graph
import numpy as np
from candle_convert.runtime.cuda import place
from candle_convert.runtime.cuda.kernel import Launch, signature
from candle_convert.runtime.cuda.machine import SIMULATED
from candle_convert.runtime.cuda.planner import OnHost, Planner
from candle_convert.runtime.cuda.program import Program
from candle_convert.runtime.plan import dtype_of
from candle_convert.runtime.registry import operators
from candle_convert.runtime.upgrade import upgrade
from single_node import model

FULL = os.environ.get("CANDLE_FULL") == "1"
SAMPLE = 12
"""Of the kernels one in so many is compiled unless CANDLE_FULL=1."""
NEWEST = (12, 1)
CHIPS = [(7, 5), (8, 0), (9, 0), NEWEST]

pytestmark = pytest.mark.skipif(SIMULATED, reason="the simulator compiles nothing")


@cache
def kernels():
    """Every kernel that the examples of all operators launch, with the types of its arguments."""
    place.kernels()
    found = {}
    for operator in operators().values():
        for example in operator.examples if place.placed(operator) is None else ():
            made, feeds = model(operator, example)
            graph = onnx_graph.graph_of(made)
            upgrade(graph)
            program = Program(graph.nodes, graph.inputs, graph.outputs, {}, None, {})
            signatures = [OnHost(dtype_of(feed), feed.shape) if isinstance(feed, np.ndarray) else OnHost(None, None)
                          for feed in (feeds.get(value.name) for value in graph.inputs)]
            plan = Planner(program, signatures, frozenset()).made()
            for step in plan.steps:
                if isinstance(step, Launch):
                    key = signature(step.arguments)
                    found.setdefault((step.kernel.function.__module__, key), (step.kernel, key))
    return list(found.values())


def test_there_are_kernels():
    assert len(kernels()) > 100


@pytest.mark.parametrize("cc", CHIPS, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
def test_kernels_compile(cc):
    chosen = kernels() if FULL else kernels()[CHIPS.index(cc) :: SAMPLE]
    for kernel, kinds in chosen:
        text = kernel.ptx(kinds, cc)
        assert f".target sm_{cc[0]}{cc[1]}" in text, kernel
        assert ".entry" in text, kernel
