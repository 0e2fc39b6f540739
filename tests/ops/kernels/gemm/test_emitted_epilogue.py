"""Products with block weights whose kernels add a bias and a residual and apply an activation: torch is the
reference."""

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

torch = pytest.importorskip("torch")
DEPTH, COLUMNS = 64, 300
FUNCTIONS = {
    "Gelu": torch.nn.functional.gelu,
    "GeluTanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "Sigmoid": torch.sigmoid,
    "Relu": torch.relu,
}


def network(activation, activations, threads):
    """An activation of a linear layer with a bias, and a linear layer with a residual; the decoded weights and the
    bias."""
    rng = np.random.default_rng(0)
    graph = Graph()
    x = graph.values["x"] = Value("x", F32, ("tokens", DEPTH))
    graph.inputs = [x]
    decoded = {}
    build = Builder(graph)

    def product(name, rows):
        data = gguf.quants.quantize(rng.normal(size=(rows, DEPTH)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
        decoded[name] = gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q8_0)
        tensor = graph.weights[name] = StoredTensor(DTYPES["q8_0"], (rows, DEPTH), Held(data.tobytes()))
        value = graph.values[name] = Value(name, tensor.dtype, tensor.shape)
        return build.add("MatMul", [x, build.add("Transpose", [value], {"perm": [1, 0]})])

    bias = rng.normal(size=COLUMNS).astype(np.float32)
    shifted = build.add("Add", [product("up", COLUMNS), build.constant(bias)])
    attributes = {"approximate": "tanh"} if activation == "GeluTanh" else {}
    graph.outputs = [
        build.add(activation.removesuffix("Tanh"), [shifted], attributes),
        build.add("Add", [product("square", DEPTH), x]),
    ]
    return Session(graph, threads, native=True, simplify=True, activations=activations), decoded, bias


@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("activations", ["f32", "q8"])
@pytest.mark.parametrize(("tokens", "threads"), [(13, 1), (130, 2)])
def test_a_layer_is_torchs(activation, activations, tokens, threads):
    """Activations that rounding to 8 bits leaves alone: 127 steps are the largest of each run."""
    session, decoded, bias = network(activation, activations, threads)
    rng = np.random.default_rng(1)
    x = rng.integers(-99, 100, (tokens, DEPTH)).astype(np.float32) / 64
    x[:, ::32] = rng.choice([-127, 127], x[:, ::32].shape) / 64
    found = session.run(None, {"x": x})
    wide, (up, square) = torch.tensor(x).double(), (torch.tensor(decoded[name]).double() for name in ("up", "square"))
    expected = (FUNCTIONS[activation](wide @ up.T + torch.tensor(bias)), wide @ square.T + wide)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=2e-6 * np.abs(want.numpy()).max(), rtol=0)
    (plan,) = session.program.plans
    assert all(isinstance(step, NativeSegment) for step in plan.steps)
    kernels = {str(getattr(launch.kernel, "name", launch.kernel)) for launch, _ in plan.launches if launch is not None}
    assert all(kernel.startswith(("q8_0_", "multiply_decoded")) or "round" in kernel for kernel in kernels), kernels
