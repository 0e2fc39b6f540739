"""CUDA graphs: which segments of a plan are captured and replayed, with a recorder in place of the driver."""

import gc

import candle_convert.runtime.cuda.device.graph_capture as capture
import numpy as np
from candle_convert.runtime.cuda.memory.device_array import DeviceArray
from candle_convert.runtime.cuda.plan.plan import Upload
from candle_convert.runtime.ir.builder import Builder
from candle_convert.runtime.ir.graph import Graph, Value
from candle_convert.runtime.session import Session
from candle_convert.runtime.tensor.dtype import F32
from numba import cuda


def chain(length):
    """Softmaxes one after another, which are launches of their own; a sum with a second input behind the third."""
    graph = Graph()
    x, late = Value("x", F32, ("n", 3)), Value("late", F32, ("n", 3))
    graph.inputs, graph.values = [x, late], {"x": x, "late": late}
    build = Builder(graph)
    for step in range(length):
        x = build.add("Softmax", [x if step != 3 else build.add("Add", [x, late])])
    graph.outputs = [x]
    return graph


class Recorder:
    """The driver's functions, which note that they were called."""

    def __init__(self, refuses=False):
        self.calls, self.refuses = [], refuses
        for name in ("stream", "begin", "end", "instantiate", "launch", "release"):
            setattr(capture, name, lambda *given, name=name: self.called(name, *given))
        capture.available = lambda: True

    def called(self, name, *given):
        self.calls.append(name)
        if name == "instantiate" and self.refuses:
            raise capture.CaptureError("CUDA_ERROR_NOT_SUPPORTED")
        return {"stream": 7, "end": "graph", "instantiate": f"executable {self.calls.count('instantiate')}"}.get(name)

    def since(self):
        found, self.calls = self.calls, []
        return found


def fed(rows, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((rows, 3)).astype(np.float32) for name in ("x", "late")}


def main():
    plain = Session(chain(6), device="cuda")
    expected = [plain.run(None, fed(2, seed))[0] for seed in range(3)]
    steps = plain.program.plans[-1].steps
    assert [isinstance(step, Upload) for step in steps] == [True, True] + [False] * (len(steps) - 2), (
        "inputs are copied before anything is launched"
    )
    assert plain.program.runners[-1].replays.captured == 0

    recorder, session = Recorder(), Session(chain(6), device="cuda")
    made = ["stream", "begin", "end", "instantiate", "launch"]
    for seed, calls in enumerate(([], made, ["launch"])):
        (y,) = session.run(None, fed(2, seed))
        assert recorder.since() == calls, seed
        if seed == 0:
            np.testing.assert_array_equal(y, expected[0])
        if seed == 1:
            np.testing.assert_array_equal(y, expected[1])  # the simulator computes while it is captured
    assert not np.array_equal(y, expected[2]), "the recorder computes nothing, and nothing else was launched"
    session.run(None, fed(3))
    session.run(None, fed(3))
    assert recorder.since() == made, "another shape is another plan"

    arrays = [DeviceArray.wrap(cuda.to_device(fed(2)["late"])) for _ in range(2)]
    given = [{"x": fed(2)["x"], "late": array} for array in arrays]
    for place, calls in ((0, []), (0, made), (1, []), (1, made[1:]), (0, ["launch"]), (1, ["launch"])):
        session.run(None, given[place])
        assert recorder.since() == calls, "other memory is another graph"

    del session
    gc.collect()
    assert recorder.since() == ["release"] * 4

    recorder, session = Recorder(refuses=True), Session(chain(6), device="cuda")
    for seed, calls in enumerate(([], made[:-1], [])):
        (y,) = session.run(None, fed(2, seed))
        assert recorder.since() == calls
        if seed != 1:  # where the simulator computes while it is captured, and then once more
            np.testing.assert_array_equal(y, expected[seed])
    assert session.program.runners[-1].replays.refused == "CUDA_ERROR_NOT_SUPPORTED"

    recorder, session = Recorder(), Session(chain(1), device="cuda")
    session.run(None, fed(2))
    session.run(None, fed(2))
    assert recorder.since() == [], "a graph of one launch is no gain"
    print("replayed")


if __name__ == "__main__":
    main()
