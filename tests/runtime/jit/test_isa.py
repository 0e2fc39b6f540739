"""The paths of kernels: what the machine has, what is forced and refused, and the same results on every path that it
has."""

import json
import os
import subprocess
import sys
from pathlib import Path

import candle_convert
import gguf
import numpy as np
import pytest
from candle_convert.runtime.jit import isa

ROOT = Path(candle_convert.__file__).parents[1]
LEVELS = [level.name for level in isa.available_levels()]
TYPES = ("q8_0", "q4_k", "q6_k", "iq4_nl")
ROWS = (1, 3, 7, 20)
NARROW = {"f16": 5e-4, "bf16": 3e-3}
"""What rounding rows for weights of 16 bits may change."""
SCRIPT = """
import faulthandler
import sys
import numpy as np
from candle_convert.runtime.execute import compile_ahead
from candle_convert.runtime.execute.shape_warmup import ShapeWarmup
from candle_convert.runtime.jit import isa as paths, numba_lazy
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.tensor.dtype import DTYPES, F32
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

faulthandler.dump_traceback_later(600, exit=True)  # says where it stands
compile_ahead.cores = lambda: 1  # in this process, which keeps the functions that kernels share
ShapeWarmup.compile_later = ShapeWarmup.imminent_kernels = lambda *arguments: []  # compiles what is run
numba_lazy.numba()
given, made = dict(np.load(sys.argv[1])), {}


def session(build, shape, weights, **options):
    graph = Graph()
    x = graph.values["x"] = Value("x", F32, shape)
    graph.inputs = [x]
    for name, tensor in weights.items():
        graph.values[name] = Value(name, tensor.dtype, tensor.shape)
        graph.weights[name] = tensor
    graph.outputs = [build(Builder(graph), x, *(graph.values[name] for name in weights))]
    return Session(graph, native=True, **options)


def layer(b, x, w):
    return b.add("MatMul", [x, b.add("Transpose", [w], {"perm": [1, 0]})])


for name in sys.argv[3].split(","):
    data = given[name]
    tensor = StoredTensor(DTYPES[name], (len(data), 512), Held(data.tobytes()))
    for activations in ("f32", "q8"):
        run = session(layer, ("n", 512), {"w": tensor}, activations=activations)
        for rows in ROWS:
            made[f"{name} {activations} {rows}"] = run.run(None, {"x": given["x"][:rows]})[0]
run = session(lambda b, x, w: b.add("MatMul", [x, w]), ("n", 512), {"w": StoredTensor.of(given["matrix"])})
for rows in ROWS:
    made[f"dense {rows}"] = run.run(None, {"x": given["x"][:rows]})[0]
weights = {"w": StoredTensor.of(given["kernels"])}
run = session(lambda b, x, w: b.add("Conv", [x, w], {"pads": [1, 1, 1, 1]}), given["image"].shape, weights)
made["conv"] = run.run(None, {"x": given["image"]})[0]
run = session(lambda b, x: b.add("Cast", [b.add("Cast", [x], {"to": 10})], {"to": 1}), given["halves"].shape, {})
made["halves"] = run.run(None, {"x": given["halves"]})[0]
for name, weight in (("MatMulInteger", "codes"), ("ConvInteger", "windows")):
    x, pads = given[weight + " x"], {} if weight == "codes" else {"pads": [1, 1, 1, 1]}
    weights = {"w": StoredTensor.of(given[weight])}
    run = session(lambda b, x, w: b.add(name, [b.add("Cast", [x], {"to": 2}), w], pads), x.shape, weights)
    made[weight] = run.run(None, {"x": x})[0]
rounding = [np.float32(1), np.uint8(3), given["rounded"], np.float32(1), np.int8(0), np.float32(2000), np.uint8(100)]
constants = {f"w{index}": StoredTensor.of(np.asarray(value)) for index, value in enumerate(rounding)}
x = given["rounded x"]
pads = {"pads": [1, 1, 1, 1]}
run = session(lambda b, x, *w: b.add("QLinearConv", [b.add("Cast", [x], {"to": 2}), *w], pads), x.shape, constants)
made["rounded"] = run.run(None, {"x": x})[0]
np.savez(sys.argv[2], level=paths.level().name, **made)
""".replace("ROWS", repr(ROWS))


def environment(level):
    return {**os.environ, isa.VARIABLE: level, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Inputs in a file, and what they mean."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("paths") / "given.npz"
    with np.errstate(invalid="ignore"):
        every = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
        below = np.nextafter(every, 0)
    arrays = {
        "x": rng.standard_normal((max(ROWS), 512), np.float32),
        "matrix": rng.standard_normal((512, 45), np.float32),
        "image": rng.standard_normal((1, 5, 11, 13), np.float32),
        "kernels": rng.standard_normal((7, 5, 3, 3), np.float32),
        "halves": np.concatenate([every, below, rng.standard_normal(1000, np.float32) * 100]),
    }
    shapes = {
        "codes": ((20, 70), (70, 45)),
        "windows": ((1, 5, 11, 13), (7, 5, 3, 3)),
        "rounded": ((1, 9, 11, 13), (32, 9, 3, 3)),
    }
    for name, (x, weight) in shapes.items():
        arrays |= {
            f"{name} x": rng.integers(0, 256, x).astype(np.float32),
            name: rng.integers(-128, 128, weight).astype(np.int8),
        }
    numbers = rng.standard_normal((45, 512), np.float32)
    upper = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    meant = {
        "f16": numbers.astype(np.float16).astype(np.float32),
        "bf16": (upper.astype(np.uint32) << 16).view(np.float32),
    }
    arrays |= {"f16": numbers.astype(np.float16).view(np.uint8), "bf16": upper.view(np.uint8)}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name.upper()]
        if name == "q8_0":
            arrays[name] = gguf.quants.quantize(numbers, kind)
        else:
            length, size = gguf.GGML_QUANT_SIZES[kind]
            blocks = rng.integers(0, 256, (45 * 512 // length, size), dtype=np.uint8)
            for at in {"q4_k": (0, 2), "q6_k": (208,), "iq4_nl": (0,)}[name]:
                blocks[:, at : at + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
            arrays[name] = blocks.reshape(45, -1)
        meant[name] = gguf.quants.dequantize(arrays[name], kind)
    np.savez(path, **arrays)
    return path, arrays, meant


def stored(level, full):
    """The types of weights that a path is tried with: all on the best one; elsewhere one by turns, unless the sweep is
    exhaustive. Without vector extensions it is a table, which other paths look up with an instruction of theirs."""
    every = ("f16", "q8_0", "bf16", "q4_k", "q6_k", "iq4_nl")
    if full or level == LEVELS[-1]:
        return every
    return ["f16", "iq4_nl"] if level == "generic" else [every[2 * LEVELS.index(level) % len(every)]]


@pytest.mark.parametrize("level", LEVELS)
def test_kernels_compute_the_same_on_every_path(level, given, full, tmp_path):
    path, arrays, meant = given
    found, types = tmp_path / "found.npz", stored(level, full)
    command = [sys.executable, "-c", SCRIPT, str(path), str(found), ",".join(types)]
    subprocess.run(command, env=environment(level), check=True, cwd=tmp_path)
    got = dict(np.load(found))
    assert got["level"] == level
    x = arrays["x"].astype(np.float64)
    step = np.abs(arrays["x"].reshape(-1, 16, 32)).max(2, keepdims=True) / np.float32(127)
    near = (np.rint(arrays["x"].reshape(-1, 16, 32) / step) * step).reshape(x.shape).astype(np.float64)
    for name in types:
        numbers = meant[name]
        for activations, rows in (("f32", x), ("q8", x if name in NARROW else near)):
            for count in ROWS:
                wanted = rows[:count] @ numbers.T.astype(np.float64)
                error = np.linalg.norm(got[f"{name} {activations} {count}"] - wanted) / np.linalg.norm(wanted)
                assert error < (1e-5 if activations == "f32" else NARROW.get(name, 2e-4)), (
                    name,
                    activations,
                    count,
                    error,
                )
    for count in ROWS:
        np.testing.assert_allclose(got[f"dense {count}"], x[:count] @ arrays["matrix"], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(got["codes"], arrays["codes x"] @ arrays["codes"].astype(np.float64))
    torch = pytest.importorskip("torch")
    sums = {}
    for name, zero in (("windows", 0), ("rounded", 3)):
        x, codes = (torch.from_numpy(arrays[item].astype(np.float64)) for item in (f"{name} x", name))
        sums[name] = torch.nn.functional.conv2d(x - zero, codes, padding=1).numpy()
    np.testing.assert_array_equal(got["windows"], sums["windows"])
    np.testing.assert_array_equal(
        got["rounded"], np.clip(np.rint(np.float32(sums["rounded"]) * np.float32(1 / 2000)) + 100, 0, 255)
    )
    wanted = torch.nn.functional.conv2d(
        torch.from_numpy(arrays["image"]), torch.from_numpy(arrays["kernels"]), padding=1
    ).numpy()
    np.testing.assert_allclose(got["conv"], wanted, rtol=1e-4, atol=1e-4)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got["halves"], arrays["halves"].astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(("level", "code"), [("sse9", "E-CPU-LEVEL"), ("amx", "E-CPU-LACKING")])
def test_a_level_that_is_not_there_is_refused(level, code, tmp_path):
    if level in LEVELS:
        pytest.skip("this machine has it")
    command = [sys.executable, "-m", "candle_convert.convert", "doctor", "--json"]
    done = subprocess.run(command, env=environment(level), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert code in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_doctor_says_which_path_runs(level, tmp_path):
    command = [sys.executable, "-m", "candle_convert.convert", "doctor", "--json"]
    done = subprocess.run(command, env=environment(level), capture_output=True, text=True, cwd=tmp_path)
    told = json.loads(done.stdout)["kernels"]
    assert (told["level"], told["forced"], told["offered"]) == (level, True, LEVELS)
    assert set(told["paths"]) == {path.kernels for path in isa.PATHS}
