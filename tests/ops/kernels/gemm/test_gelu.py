"""GELU in the epilogue of a product, at every magnitude: SciPy's normal distribution in f64 is the reference."""

import gguf
import numpy as np
import pytest
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.plan.plan import NativeSegment
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import DTYPES, F32
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from scipy.special import ndtr

DEPTH = 64
ENDS = [5.4, np.nextafter(5.4, 6), 1e-30, 1e4, 1e30]
X = np.concatenate([np.linspace(-9, 9, 4001), ENDS, np.negative(ENDS)]).astype(np.float32)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gelu_of_a_bias(kind):
    """The product itself is zero, so that GELU is that of `X`."""
    kind = gguf.GGMLQuantizationType[kind]
    data = gguf.quants.quantize(np.ones((len(X), DEPTH), np.float32), kind)
    graph = Graph()
    rows = graph.values["rows"] = Value("rows", F32, ("tokens", DEPTH))
    tensor = graph.weights["w"] = StoredTensor(DTYPES[kind.name.lower()], (len(X), DEPTH), Held(data.tobytes()))
    weight = graph.values["w"] = Value("w", tensor.dtype, tensor.shape)
    build = Builder(graph)
    product = build.add("MatMul", [rows, build.add("Transpose", [weight], {"perm": [1, 0]})])
    graph.inputs, graph.outputs = [rows], [build.add("Gelu", [build.add("Add", [product, build.constant(X)])])]
    session = Session(graph, native=True, simplify=True)
    (y,) = session.run(None, {"rows": np.zeros((13, DEPTH), np.float32)})
    (plan,) = session.program.plans
    assert all(isinstance(step, NativeSegment) for step in plan.steps)
    exact = X.astype(np.float64) * ndtr(X.astype(np.float64))
    worst = np.max(np.abs(y - exact) / np.abs(X).clip(1e-37))
    assert worst < 3e-7
    assert not y[:, np.negative(X) > np.float32(5.4)].any()
