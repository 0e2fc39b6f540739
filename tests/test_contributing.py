"""The recipes for extensions work as typed: all their files, in a copy of the package, are found and used."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from candle_convert.tests.builders.paths import REPOSITORY

TEXT = (REPOSITORY / "docs" / "contribute" / "extensions.md").read_text(encoding="utf-8")
FIRST = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
ROWS = {
    "runtime/tensor/dtype.py": ('("q5_test", ', '        ("q4_0_v1", 32, 20),\n'),
    "tests/convert/cli/test_command_line.py": ('(["count", ', '    (["types"], {"types": LIST}),\n'),
}
"""By file: how the row of the recipe begins, and the text that it is put before."""
TESTS = {
    "tests/runtime/ir/test_operand_types.py": "CDist",
    "tests/models/language/test_decoders.py": "jais2",
    "tests/formats/test_truncation.py": "idx or sample",
    "tests/formats/test_random_damage.py": "idx",
    "tests/convert/open/test_detect_format.py": "idx",
    "tests/convert/cli/test_command_line.py": "count or json_case",
}
"""Suites that cover an extension without an edit, and what to select."""
USED = r"""
import json
from pathlib import Path

import candle_convert as cc
import numpy as np
from candle_convert.convert.cli.main import run
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.ops.training.gradient import derivatives  # loads the rules
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import load, operator, registering
from candle_convert.runtime.plan.plan import PythonStep
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model
from onnx import parser
from safetensors.numpy import save_file


def told(name):
    print(name, flush=True)


random = np.random.default_rng(0)
made, feeds = model(operator("CDist", "com.microsoft"), case("f32[3,4]", "f32[5,4]", metric="euclidean"))
want = np.linalg.norm(feeds["x0"][:, None] - feeds["x1"], axis=-1)
for name, options in (("operator", {"native": False}), ("CPU kernel", {"native": True}), ("CUDA", {"device": "cuda"})):
    session = Session(graph_of(made), **options)
    np.testing.assert_allclose(session.run(None, feeds)[0], want, rtol=1e-5)
    if name == "CPU kernel":
        assert not any(isinstance(step, PythonStep) for plan in session.program.plans for step in plan.steps)
    told(name)

head = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "ai.onnx.preview.training" : 1]>'
text = head + '''g (double[4] x) => (double[4] d) {
    y = com.microsoft.QuickGelu <alpha = 1.5> (x)
    z = ReduceSum <keepdims = 0> (y)
    d = ai.onnx.preview.training.Gradient <xs = ["x"], y = "z"> (x)
}'''
x = np.linspace(-2, 2, 4)
swish = lambda x: x / (1 + np.exp(-1.5 * x))
(slope,) = Session(graph_of(parser.parse_model(text))).run(None, {"x": x})
np.testing.assert_allclose(slope, (swish(x + 1e-6) - swish(x - 1e-6)) / 2e-6, rtol=1e-6)
told("gradient")

text = head + '''g (float[4] x) => (float[4] y) {
    one = Constant <value_float = 1.0> ()
    a = Abs (x)
    s = Add (a, one)
    d = Div (x, s)
    r = Relu (d)
    b = Abs (r)
    y = Neg (b)
}'''
session = Session(graph_of(parser.parse_model(text)), simplify=True)
assert [node.op.name for node in session.program.region.nodes] == ["Softsign", "Relu", "Neg"]
told("pass, fusion rule")

lengths = np.array([2, 3], ">u4").tobytes()
Path("x.idx").write_bytes(b"\0\0\x08\x02" + lengths + bytes(range(6)))
assert cc.open("x.idx")["x"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
told("format")

assert run(["count", "x.idx", "--json"]) == 0
assert run(["types", "q5_test"]) == 0
told("command, block type")

Path("rows").mkdir()
codes, scales = random.integers(-127, 127, (4, 8), dtype=np.int8), random.random(4, dtype=np.float32)
save_file({"up.weight": codes, "up.weight_scale": scales}, "rows/model.safetensors")
config = {"model_type": "none", "quantization_config": {"quant_method": "int8_rows"}}
Path("rows/config.json").write_text(json.dumps(config))
np.testing.assert_array_equal(cc.open("rows")["up.weight"].numpy(), codes * scales[:, None])
told("scheme")

Path("probe").mkdir()
weight, images = random.normal(size=(3, 16)).astype(np.float32), random.integers(0, 255, (5, 4, 4), dtype=np.uint8)
save_file({"classifier.weight": weight}, "probe/model.safetensors")
Path("probe/config.json").write_text(json.dumps({"model_type": "linear_probe", "num_pixels": 16, "num_labels": 3}))
found = cc.models.load("probe", threads=1).classify(images)
assert found.tolist() == (images.reshape(5, 16) @ weight.T).argmax(-1).tolist()
told("model of another kind")
"""
TOLD = ("operator", "CPU kernel", "CUDA", "gradient", "pass, fusion rule", "format", "command, block type", "scheme")


def test_every_recipe_works_as_typed(tmp_path):
    package = tmp_path / "candle_convert"
    left_out = shutil.ignore_patterns("__pycache__", ".*", "docs", "benchmarks", "examples", "*.npz")
    shutil.copytree(REPOSITORY, package, ignore=left_out)
    for path, text in FILES:
        assert not (package / path).exists(), path
        (package / path).parent.mkdir(exist_ok=True)
        (package / path).write_text(text)
    for path, (start, before) in ROWS.items():
        row, whole = re.search(rf"^{re.escape(start)}.*\n", TEXT, re.MULTILINE)[0], (package / path).read_text()
        assert whole.count(before) == 1
        (package / path).write_text(whole.replace(before, f"    {row}{before}"))
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "NUMBA_ENABLE_CUDASIM": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", USED], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert [line for line in done.stdout.splitlines() if line in TOLD] == [*TOLD]
    chosen = {path: "test" for path, _ in FILES if Path(path).name.startswith("test_")} | TESTS
    words = " or ".join(f"({Path(path).stem} and ({names}))" for path, names in chosen.items())
    command = [sys.executable, "-m", "pytest", "-rp", "--rootdir", str(package), "-k", words]
    command += [str(package / path) for path in chosen]
    done = subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert set(re.findall(r"^PASSED (\S+?)::", done.stdout, re.MULTILINE)) == set(chosen)


def test_the_table_names_every_recipe():
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert headings
    for heading in headings:
        assert f"(docs/contribute/extensions.md#{heading.lower().replace(' ', '-')})" in FIRST
