"""Compares a node's native kernel, on one thread and on two, with the NumPy function of its operator."""

import ctypes

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.plan.plan import PythonStep
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model, with_constants


def natively(name, example, opset=None, domain="", rtol=1e-5, atol=1e-6, constant=(), simplify=None):
    """Outputs of the native plan; fails where a step runs in Python, threads change a bit, or NumPy says something
    else.

    `constant` has the positions of inputs that are initializers; with `simplify` operators without a kernel of their
    own are decomposed.
    """
    made, feeds = model(operator(name, domain), example, opset)
    made, feeds = with_constants(made, feeds, constant)
    expected = Session(onnx_graph.graph_of(made), threads=1, native=False).run(None, feeds)
    sessions = [
        Session(onnx_graph.graph_of(made), threads=threads, native=True, simplify=simplify) for threads in (1, 2)
    ]
    one, two = (session.run(None, feeds) for session in sessions)
    steps = [step for session in sessions for plan in session.program.plans for step in plan.steps]
    assert steps, "nothing runs"
    assert not any(isinstance(step, PythonStep) for step in steps), "a step runs in Python"
    for index, (found, other, right) in enumerate(zip(one, two, expected, strict=True)):
        assert (found is None) == (right is None)
        if right is None:
            continue
        assert found.dtype == right.dtype
        assert found.shape == right.shape
        np.testing.assert_array_equal(found, other, err_msg=f"output {index} on two threads")
        if right.dtype.kind in "iub" and rtol == 0 == atol:
            np.testing.assert_array_equal(found, right)
        else:
            wide = (item.astype(np.float64) for item in (found, right))
            np.testing.assert_allclose(*wide, rtol=rtol, atol=atol, err_msg=f"output {index}")
    return one


def launched(kernel, **arguments):
    """Run a range kernel as two parts."""
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.address)
    block = np.array(kernel.parameters.block(arguments), np.int64)
    for part in range(2):
        call(block.ctypes.data, part, 2)
