"""Made-up operators in a copy of the package: one new file, with a formula or a description of rows, computes one in
NumPy, on the CPU and on the device; two more give it kernels of its own. NumPy is the oracle."""

import os
import subprocess
import sys

import pytest
from candle_convert.tests.builders.paths import REPOSITORY

FOLDERS = (
    "__init__.py",
    "runtime",
    "formats",
    "tensors",
    "nn",
    "optim",
    "torch_compat",
    "training",
    "models",
    "convert",
)
"""The package besides `ops`."""
FORMULA = '''"""LeakyBias: the activated sum of rows and a scaled bias."""

from __future__ import annotations

from ...runtime.ir.op import case
from ..rules.decomposition import composed
from ..rules.expression import Term
from ..rules.shape_rules import same_as_input


@composed("LeakyBias", "made.up", infer=same_as_input, examples=[case("f32[3,5]", "f32[5]", scale=0.5)])
def leaky_bias(x: Term, bias: Term, *, scale: float = 1.0) -> Term:
    """``LeakyRelu(x + scale * bias)``."""
    return (x + bias * scale).call("LeakyRelu", alpha=0.25)
'''
KERNEL = '''"""Native LeakyBias."""

from __future__ import annotations

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from .leaky_bias import leaky_bias


@range_kernel
def leaky(x: Address, bias: Address, y: Address, rows: int, width: int, scale: float, part: int, parts: int) -> None:
    """Rows of f32."""
    x, bias, y = f32(x), f32(bias), f32(y)
    first, last = share(rows, part, parts)
    for at in range(first * width, last * width):
        total = x[at] + scale * bias[at % width]
        y[at] = total if total > 0 else total * 0.25


@native(leaky_bias)
def plan_leaky_bias(step: Step) -> Planned:
    """A row at a time."""
    x, bias = step.inputs
    rows, width, y = x.count // bias.count, bias.count, step.output()
    parts, scale = step.parts(rows, x.count), step.attributes["scale"]
    return Launch(leaky, parts, x=x, bias=bias, y=y, rows=rows, width=width, scale=scale)
'''
CUDA = '''"""LeakyBias on the device."""

from __future__ import annotations

from ...runtime.cuda.kernel.elementwise import elementwise_chain
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from .leaky_bias import leaky_bias


def _leaky(x: float, bias: float, scale: float) -> float:
    total = x + scale * bias
    return total if total > 0 else total * 0.25


@cuda(leaky_bias)
def leaky_on_device(step: Step) -> Planned:
    """One function of an element and its bias."""
    return elementwise_chain(_leaky, [step.input(0), step.input(1)], step.output(), step.attributes["scale"])
'''
ROWS = '''"""MinMax: rows scaled to 0 to 1, and the length of their range."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, element, larger, smaller


def _infer(node: Inference) -> None:
    shape, axis = node.shape(0), node.attributes["axis"]
    node.set(0, node.dtype(0), shape)
    node.set(1, node.dtype(0), None if shape is None else [dim for k, dim in enumerate(shape) if k != axis])


def _scaled(x: float, low: float, high: float, floor: float) -> float:
    return (x - low) / max(high - low, floor)


def _range(low: float, high: float) -> float:
    return high - low


def _rows(step: BaseStep) -> Described:
    x = step.inputs[0]
    folds = [Fold("low", element, smaller), Fold("high", element, larger)]
    outputs = [Output(_scaled, step.output(0)), Output(_range, step.output(1), per_row=True)]
    return Rows(x.shape, [step.attributes["axis"]], {"x": x}, folds, outputs, {"floor": step.attributes["floor"]})


@op("MinMax", "made.up", infer=_infer, rows=_rows, examples=[case("f32[3,5]", axis=1, outputs=2)])
def min_max(x: np.ndarray, *, axis: int, floor: float = 1e-6) -> tuple[np.ndarray, np.ndarray]:
    """``(x - min) / max(max - min, floor)`` and ``max - min`` along an axis."""
    low, high = x.min(axis, keepdims=True), x.max(axis, keepdims=True)
    return (x - low) / np.maximum(high - low, np.float32(floor)), np.squeeze(high - low, axis)
'''
PROGRAM = """
import sys
import numpy as np
from candle_convert.runtime.cuda.plan import kernel_api as device
from candle_convert.runtime.cuda.plan.plan import HostStep
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.plan.plan import PythonStep
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32

def made():
    graph = Graph()
    graph.inputs = [Value("x", F32, (3, 5)), Value("bias", F32, (5,))]
    graph.values.update((value.name, value) for value in graph.inputs)
    graph.outputs = [Builder(graph).add("LeakyBias", graph.inputs, {"scale": 0.5}, domain="made.up")]
    return graph

random = np.random.default_rng(3)
feeds = {"x": random.normal(size=(3, 5)).astype("f4"), "bias": random.normal(size=5).astype("f4")}
total = feeds["x"] + np.float32(0.5) * feeds["bias"]
expected = np.where(total > 0, total, total / 4)
plain, native = Session(made(), native=False, simplify=False), Session(made(), native=True, simplify=True)
cuda = Session(made(), device="cuda")
for session in (plain, native, cuda):
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-6)
assert not any(isinstance(step, PythonStep) for plan in native.program.plans for step in plan.steps)
assert not any(isinstance(step, HostStep) for runner in cuda.program.runners for step in runner.plan.steps)
names = [node.op.name for node in native.program.region.nodes]
print(*names, device.planner_of(operator("LeakyBias", "made.up")) is not None)
"""


ROW_PROGRAM = """
import numpy as np
from candle_convert.runtime.cuda.plan.plan import HostStep
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.plan.plan import PythonStep
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F16, F32

def made(dtype, axis):
    graph = Graph()
    graph.inputs = [Value("x", dtype, (6, 200, 5))]
    graph.values.update((value.name, value) for value in graph.inputs)
    graph.outputs = Builder(graph).node("MinMax", graph.inputs, {"axis": axis}, outputs=2, domain="made.up").outputs
    return graph

for dtype, tolerance in ((F32, 1e-6), (F16, 1e-3)):
    x = np.random.default_rng(3).normal(size=(6, 200, 5)).astype(dtype.as_numpy())
    for axis in (0, 1, 2):
        low, high = x.astype("f8").min(axis, keepdims=True), x.astype("f8").max(axis, keepdims=True)
        expected = (x - low) / (high - low), np.squeeze(high - low, axis)
        plain, native = (Session(made(dtype, axis), native=native) for native in (False, True))
        cuda = Session(made(dtype, axis), device="cuda")
        for session in (plain, native, cuda):
            for found, right in zip(session.run(None, {"x": x}), expected, strict=True):
                np.testing.assert_allclose(found.astype("f8"), right, rtol=tolerance, atol=tolerance)
        assert not any(isinstance(step, PythonStep) for plan in native.program.plans for step in plan.steps)
        assert not any(isinstance(step, HostStep) for runner in cuda.program.runners for step in runner.plan.steps)
print("equal")
"""


@pytest.mark.parametrize(
    ("files", "program", "said"),
    [
        ({"leaky_bias": FORMULA}, PROGRAM, "Mul Add LeakyRelu False"),
        ({"leaky_bias": FORMULA, "leaky_bias_kernel": KERNEL, "leaky_bias_cuda": CUDA}, PROGRAM, "LeakyBias True"),
        ({"min_max": ROWS}, ROW_PROGRAM, "equal"),
    ],
    ids=["decomposed", "kernels", "rows"],
)
def test_an_operator_needs_new_files_only(tmp_path, files, program, said):
    package = tmp_path / "candle_convert"
    (package / "ops" / "made_up").mkdir(parents=True)
    for name in FOLDERS:
        (package / name).symlink_to(REPOSITORY / name)
    for source in (REPOSITORY / "ops").iterdir():
        if source.name != "__pycache__":
            (package / "ops" / source.name).symlink_to(source)
    for name, text in {"__init__": '"""Made up."""\n', **files}.items():
        (package / "ops" / "made_up" / f"{name}.py").write_text(text)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
        "HOME": str(tmp_path),
        "NUMBA_ENABLE_CUDASIM": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == said
