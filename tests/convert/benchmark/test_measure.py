"""Benchmarks: engines whose threads spin on do not while others run, and runs are shared out over the turns."""

import time

import numpy as np
import pytest
from candle_convert.convert.benchmark import measure
from candle_convert.runtime.base import compile_progress
from candle_convert.runtime.base.errors import UnsupportedError
from candle_convert.tests.builders import spinning_engine
from onnx import TensorProto, helper


def test_no_engine_runs_in_the_turns_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "_serve", spinning_engine.serve)
    found = measure.measure(["one", "other"], str(tmp_path), {}, runs=3, warmup=1, threads=None)
    assert [row.seconds for row in found] == [[0, 0, 0]] * 2
    assert all(row.peak > 0 for row in found)  # how far its own thread spun


@pytest.mark.parametrize("runs", [1, 2, 5, 7, 20])
def test_turns_share_the_runs(runs):
    turns = measure._turns(runs)
    assert sum(turns) == runs
    assert len(turns) == min(runs, measure.TURNS)
    assert max(turns) - min(turns) <= 1


def test_an_engine_neither_reports_compiling_nor_is_charged_for_it(monkeypatch):
    def run(feeds):
        with compile_progress.compile_time(1):
            compile_progress.report(compile_progress.CompileProgress(0, 1, 0.0, 9.0))
            time.sleep(0.3)

    class Pipe:
        def __init__(self):
            self.sent, self.requests = [], iter(["peak"])

        def recv(self):
            return next(self.requests)

        def send(self, answer):
            self.sent.append(answer)

    heard, pipe = [], Pipe()
    monkeypatch.setitem(measure.ENGINES, "fake", lambda *settings: run)
    before = compile_progress.on_compile(heard.append)
    try:
        measure._serve(pipe, "fake", "m", {}, None, {})
    finally:
        compile_progress.on_compile(before)
    (load, first), _ = pipe.sent
    assert load < 0.3
    assert first < 0.3
    assert heard == []


def test_a_model_that_another_engine_cannot_run(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    ends = [helper.make_tensor_value_info(name, TensorProto.INT32, [2]) for name in "xy"]
    made = helper.make_graph([helper.make_node("Selu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    path = tmp_path / "m.onnx"
    path.write_bytes(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
    )
    with pytest.raises(Exception, match="INVALID"):
        onnxruntime.InferenceSession(path)
    with pytest.raises(UnsupportedError, match=r"onnxruntime cannot run the model: .*INVALID"):
        measure.measure(["onnxruntime"], str(path), {"x": np.zeros(2, np.int32)}, runs=1, warmup=0, threads=1)
