"""kernel: compiled functions of elements and of rows compute what torch and NumPy do, on the CPU and the device."""

import importlib.util
import math
import os
import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.tests.builders.paths import REPOSITORY

SPEC = importlib.util.spec_from_file_location("flash_attention", REPOSITORY / "examples" / "flash_attention.py")
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)
flash_attention = example.flash_attention


@cc.kernel
def softclip(x, limit):
    return x / (1 + abs(x) / limit) if limit > 0 else x


@cc.kernel
def softclip_grad(x, limit):
    inner = 1 + abs(x) / limit
    return 1 / (inner * inner) if limit > 0 else 1.0


@softclip.gradient
def softclip_gradient(grad, x, limit):
    return grad * softclip_grad(x, limit), None


@softclip_grad.gradient
def softclip_curvature(grad, x, limit):
    return -2 * grad * cc.sign(x) / limit / (1 + x.abs() / limit) ** 3, None


def expected(m, x, limit):
    return m.where(limit > 0, x / (1 + abs(x) / limit), x)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_elements(dtype):
    x = (
        torch.linspace(-3, 3, 12)
        .reshape(3, 4)
        .to(getattr(torch, {"f32": "float32", "f64": "float64"}.get(dtype, "float32")))
    )
    limit = torch.tensor([0.5, 1, -1, 2], dtype=x.dtype)
    found = softclip(cc.from_dlpack(x).to(dtype), cc.from_dlpack(limit).to(dtype))
    assert found.dtype.name == dtype
    rtol = {"f32": 1e-6, "f64": 1e-12}.get(dtype, 1e-2)
    np.testing.assert_allclose(found.double().numpy(), expected(torch, x, limit).double().numpy(), rtol=rtol)
    assert softclip(3, 2).item() == pytest.approx(1.2)
    assert softclip(cc.zeros(0, 4), 2.0).shape == (0, 4)


def test_gradients_of_elements():
    x = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(3, 4)
    ours, theirs = cc.from_dlpack(x.clone()).requires_grad_(), x.clone().requires_grad_()
    limit = torch.tensor(1.5, dtype=torch.float64)

    def second(m, y, x):
        gradient = torch.autograd.grad if m is torch else cc.gradients
        (grad,) = gradient((y * y).sum(), [x], create_graph=True)
        return grad, gradient((grad * grad).sum(), [x])[0]

    found = second(cc, softclip(ours, cc.from_dlpack(limit)), ours)
    for one, other in zip(second(torch, expected(torch, theirs, limit), theirs), found, strict=True):
        np.testing.assert_allclose(other.detach().numpy(), one.detach().numpy(), rtol=1e-10)


def test_elements_under_jit():
    x = cc.randn(200, 300)
    found = cc.jit(lambda x: softclip(x.exp() * 2, 3.0).sum(0))(x)
    e = np.exp(x.numpy()) * 2
    np.testing.assert_allclose(found.numpy(), (e / (1 + e / 3)).sum(0), rtol=1e-4)


@pytest.mark.parametrize("wrap", [lambda f: f, cc.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(causal, wrap):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 40, size)).astype(np.float32) for size in (16, 16, 24)]

    def gradients(q, k, v):
        given = [each.requires_grad_() for each in (q, k, v)]
        y, _ = flash_attention(*given, scale=0.25, causal=causal)
        return y.detach(), *cc.gradients((y * y).sum(), given)

    found = wrap(gradients)(*(cc.tensor(each) for each in arrays))
    given = [torch.tensor(each, requires_grad=True) for each in arrays]
    y = torch.nn.functional.scaled_dot_product_attention(*given, scale=0.25, is_causal=causal)
    (y * y).sum().backward()
    for one, other in zip((y, *(each.grad for each in given)), found, strict=True):
        np.testing.assert_allclose(other.numpy(), one.detach().numpy(), rtol=1e-4, atol=1e-5)


DEVICE = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import candle_convert as cc
from flash_attention import flash_attention
from candle_convert.runtime.ir.graph import Graph, Node, Value
from candle_convert.runtime.session import Session
from candle_convert.tensors import compiled_kernel

@cc.kernel
def softclip(x, limit):
    return x / (1 + abs(x) / limit)

q = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
both = (flash_attention(*(cc.tensor(q),) * 3, scale=0.5)[0], softclip(cc.tensor(q), 2.0))
values = [made.numpy() for made in both]
for made, expected in zip(both, values):
    op = made.expression.signature.op
    given = (q, q, q) if "flash" in op.name else (q, np.float32(2))
    feeds = {f"x{n}": np.asarray(each) for n, each in enumerate(given)}
    graph = Graph()
    graph.inputs = [Value(n, cc.f32, each.shape) for n, each in feeds.items()]
    graph.outputs = [Value("y")]
    outputs = [*graph.outputs, *[Value("")] * ("flash" in op.name)]
    graph.nodes.append(Node(op, list(graph.inputs), outputs, {}))
    graph.outputs[0].producer = graph.nodes[0]
    graph.values.update((value.name, value) for value in (*graph.inputs, *graph.outputs))
    session = Session(graph, device="cuda")
    compiled_kernel._run = None  # it must not run on the host
    found = session.run(None, feeds)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    print("equal")
"""


def test_on_the_device(tmp_path):
    """In Numba's simulator."""
    script = tmp_path / "script.py"
    script.write_text(DEVICE)
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, str(script), str(REPOSITORY / "examples")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["equal", "equal"], done.stderr


def test_errors_say_what_is_wrong():
    factor = 2.0
    with pytest.raises(cc.UsageError, match="uses factor of the function around it"):
        cc.kernel(lambda x: x * factor)
    with pytest.raises(cc.UsageError, match="takes 2 arguments, 1 are given"):
        softclip(1.0)
    with pytest.raises(cc.UsageError, match="needs both rows and results"):
        cc.kernel(rows=len)
    with pytest.raises(cc.UsageError, match=r"flash_attention does not take f16\[1, 2, 3\]"):
        flash_attention(*(cc.zeros(1, 2, 3).half(),) * 3)
    with pytest.raises(cc.UsageError, match="wide is not an option of flash_attention"):
        flash_attention(*(cc.zeros(1, 2, 3),) * 3, wide=1)
    plain = cc.kernel(abs_of)
    x = cc.ones(2, requires_grad=True)
    with pytest.raises(cc.UnsupportedError, match="it has no gradient"):
        plain(x).sum().backward()


def abs_of(x):
    return math.fabs(x)
