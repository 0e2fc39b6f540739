"""Simplification: smaller graphs with onnxruntime's outputs of the original, on built graphs and the onnx package's
models."""

import subprocess
import sys

import pytest
from candle_convert.runtime.passes import pipeline
from candle_convert.runtime.passes.pattern.stage import BACKENDS, STAGES, PipelineOptions
from candle_convert.tests.builders.paths import REPOSITORY

CPU = [
    "LowerOperators", "FuseByteTables", "FuseQDQ", "FuseTableEpilogue", "JoinSumsOfProducts", "UseHalfWeights",
    "FuseLinear", "Simplify", "FuseGridAttention", "WidenHalfConvRegions", "UseNchwc",
]  # fmt: skip
CUDA = ["FuseInt4Dequantize", "FuseLinear", "Simplify"]
ADDED = '''"""Counts its runs."""

from ..pattern.stage import PipelinePass


class Counting:
    def run(self, graph):
        print("ran on", len(graph.nodes), "nodes")
        return False


PIPELINE = (PipelinePass("layout", lambda options: Counting(), backends=("cpu",)),)
'''
SOFTSIGN = '''"""Softsign fusion."""

from ..pattern.pattern import call, var
from ..pattern.rewrite_rules import Rule

X = var("x")
FUSION_RULES = (Rule("Softsign", X / (1 + call("Abs", X)), lambda match, build: build.add("Softsign", [match["x"]])),)
'''
SOFTSIGN_PROGRAM = """
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.passes.simplification import Simplify
from candle_convert.runtime.tensor.dtype import F32
graph = Graph()
x = graph.values["x"] = Value("x", F32, (2,))
graph.inputs = [x]
build = Builder(graph)
total = build.add("Add", [build.add("Abs", [x]), build.constant(1, "float32")])
graph.outputs = [build.add("Div", [x, total])]
Simplify().run(graph)
print([node.op.name for node in graph.nodes])
"""
PROGRAM = """
import numpy as np
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32
graph = Graph()
x = graph.values["x"] = Value("x", F32, (2,))
graph.inputs = [x]
graph.outputs = [Builder(graph).add("Relu", [x])]
print(Session(graph, simplify=True).run(None, {"x": np.float32([-1, 2])})[0].tolist())
"""


@pytest.mark.parametrize(("backend", "names"), [("cpu", CPU), ("cuda", CUDA)])
def test_the_passes_of_a_backend(backend, names):
    options = PipelineOptions("f32")
    assert [type(item).__name__ for item in pipeline.required(backend, options)] == ["FuseLinear"]
    assert [type(item).__name__ for item in pipeline.simplifying(backend, options)] == names


def test_stages_and_backends_exist():
    for items in pipeline.PASSES.all():
        for item in items:
            assert item.stage in STAGES
            assert set(item.backends) <= set(BACKENDS)


@pytest.mark.parametrize(
    ("path", "text", "program", "printed"),
    [
        ("layout/counting.py", ADDED, PROGRAM, "ran on 1 nodes\n[0.0, 2.0]\n"),
        ("fuse/softsign.py", SOFTSIGN, SOFTSIGN_PROGRAM, "['Softsign']\n"),
    ],
    ids=["pass", "fusion rule"],
)
def test_a_pass_or_a_fusion_rule_is_one_new_file(path, text, program, printed, tmp_path):
    """In a package that shares all folders but that of passes with this one."""
    package = tmp_path / "candle_convert"
    for source in sorted((REPOSITORY / "runtime").rglob("*.py")):
        target = package / source.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    for name in ("__init__.py", "ops", "nn", "models", "convert", "formats", "torch_compat"):
        (package / name).symlink_to(REPOSITORY / name)
    (package / "runtime" / "passes" / path).write_text(text)
    environment = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == printed
