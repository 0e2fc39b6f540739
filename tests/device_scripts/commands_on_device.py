"""The commands calibrate, verify, profile, eval and graph reduce: the same output on the device as on the CPU.

python commands_on_device.py FOLDER
"""

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import candle_convert as cc
import numpy as np
from candle_convert.convert.cli.main import run
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.onnx_files import perceptron

folder = Path(sys.argv[1])
model, other = perceptron(folder / "m.onnx"), perceptron(folder / "other.onnx", bias=0.75)
rng = np.random.default_rng(0)
x = rng.standard_normal((4, 3)).astype(np.float32)
(y,) = Session(cc.open(model)).run(None, {"x": x})
np.savez(folder / "data.npz", x=x, labels=y)
np.save(folder / "x.npy", x)
DEVICE = ("--device", "cuda")


def said(*arguments, code=0):
    out = io.StringIO()
    with redirect_stdout(out):
        assert run([*map(str, arguments), "--json"]) == code, (arguments, out.getvalue())
    return json.loads(out.getvalue())


calibrated = [
    said("calibrate", model, "-d", folder / "data.npz", "-o", folder / f"{len(extra)}.json", *extra)["values"]
    for extra in ((), DEVICE)
]
assert calibrated[0].keys() == calibrated[1].keys() > {"x", "hidden", "y"}
for name, seen in calibrated[0].items():
    np.testing.assert_allclose(
        [calibrated[1][name][end] for end in ("low", "high")],
        [seen[end] for end in ("low", "high")],
        rtol=1e-5,
        atol=1e-6,
    )
print("calibrate")

same = said("verify", model, model, "--input", f"x={folder / 'x.npy'}", *DEVICE)
assert [row["same"] for row in same["outputs"]] == [True]
differs = said("verify", model, other, "--input", f"x={folder / 'x.npy'}", "--nodes", *DEVICE, code=1)
assert differs["first_difference"]["name"] == "sum"
assert said("verify", folder / "data.npz", folder / "data.npz", *DEVICE, code=2)["error"]["code"] == "E-OPTION"
print("verify")

trace = folder / "trace.json"
profile = said("profile", model, "--input", f"x={folder / 'x.npy'}", "--runs", 2, "--warmup", 1, "-o", trace, *DEVICE)
hows = [row["how"] for row in profile["nodes"]]
assert any("copy to the device" in how for how in hows)
assert any("product" in how for how in hows)
assert {row["operator"] for row in profile["nodes"]} <= {"MatMul", "Linear", "Add", "Relu"}
assert all(row["seconds"] > 0 for row in profile["nodes"])
assert abs(sum(row["share"] for row in profile["nodes"]) - 1) < 1e-9
assert profile["device"] == "cuda"
spans = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
assert {event["cat"] for event in spans} == {"run", "device"}
print("profile")

scoring = ("eval", model, "-d", folder / "data.npz", "--labels", "labels", "--metric", "mse")
scored = [said(*scoring, *extra)["metrics"][0]["value"] for extra in ((), DEVICE)]
assert scored[0] <= 1e-12 >= scored[1]
print("eval")

assert said("graph", "reduce", model, folder / "r.onnx", *DEVICE, code=2)["error"]["code"] == "E-GRAPH-WORKS"
assert (
    said("graph", "reduce", model, folder / "r.onnx", "--fails", "false {}", *DEVICE, code=2)["error"]["code"]
    == "E-OPTION"
)
print("reduce")
