"""Device selection without a GPU: a clear error, and placement reports before a run, from Python and the command
line."""

import json

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.runtime.base.errors import UnsupportedError, UsageError
from candle_convert.tests.builders.paths import DEVICE_SCRIPTS
from onnx import TensorProto, helper

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from candle_convert.tests.device_scripts.runner import run_script


@pytest.fixture
def model(tmp_path):
    """A product, an activation, texts on the side, and a shape that is not known."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
        helper.make_node("Cast", ["y"], ["s"], to=TensorProto.STRING),
        helper.make_node("Cast", ["s"], ["r"], to=TensorProto.FLOAT),
        helper.make_node("NonZero", ["r"], ["z"]),
        helper.make_node("Cast", ["z"], ["f"], to=TensorProto.FLOAT),
    ]
    weights = [onnx.numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "f")]
    path = tmp_path / "model.onnx"
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def answer(capsys, *arguments):
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("no_card")
def test_no_card_is_one_clear_error(model):
    for asked in ("CUDAExecutionProvider", ("CUDAExecutionProvider", {"device_id": 0})):
        with pytest.raises(UnsupportedError) as caught:
            cc.InferenceSession(model, providers=[asked])
        assert caught.value.code == "E-DEVICE-NONE"
        assert "--device cpu" in caught.value.hint
    assert run(["run", str(model), "--device", "cuda:0"]) == 4
    with pytest.raises(UsageError), pytest.warns(UserWarning, match="Tensorrt"):
        cc.InferenceSession(model, providers=["TensorrtExecutionProvider"])


def test_devices_that_do_not_exist(model):
    assert run(["run", str(model), "--device", "tpu"]) == 2
    assert run(["ops", "--device", "tpu"]) == 2


def test_the_cpu_is_what_nobody_asks_for(model):
    assert cc.InferenceSession(model).get_providers() == ["CPUExecutionProvider"]
    assert cc.InferenceSession(model, providers=["CPUExecutionProvider", "CUDAExecutionProvider"]).get_providers() == [
        "CPUExecutionProvider"
    ]


def test_every_operator_says_where_it_runs(capsys):
    rows = answer(capsys, "ops", "--device", "cuda")["ops"]
    assert {row["device"] for row in rows} == {"cuda", "cpu"}
    assert not [row["op"] for row in rows if row["device"] == "cpu" and row["why"] in (None, "it has no CUDA path")]
    assert all(row["why"] is None for row in rows if row["device"] == "cuda")
    assert sum(row["device"] == "cuda" for row in rows) >= 230
    assert not [row["op"] for row in rows if "written for it yet" in (row["why"] or "")]


def test_what_a_model_costs_is_foreseen(model, capsys):
    placement = answer(capsys, "ops", str(model), "--device", "cuda", "--dim", "batch=2")["placement"]
    assert placement["device"] == {"MatMul": 1, "NonZero": 1, "Relu": 1}
    assert [row["op"] for row in placement["host"]] == ["Cast", "Cast"]
    assert placement["copied"] == {"to_device": 24, "to_host": 24, "inputs": 32, "outputs": 0}
    assert placement["device_bytes"]["weights"] == 48
    assert placement["pending"] == 1


def test_a_run_says_what_it_copied(model):
    script = model.with_suffix(".py")
    script.write_text(
        "import sys; from candle_convert.convert.cli.main import run; "
        f"sys.exit(run(['run', {str(model)!r}, '--device', 'cuda', '--dim', 'batch=2', '--json']))"
    )
    placement = json.loads(run_script(script))["placement"]
    assert placement["device"]["MatMul"] == 1
    assert placement["copied"]["to_host"] == 24


def test_memory_that_is_not_there_is_refused_by_the_plan(model):
    script = model.with_suffix(".py")
    script.write_text(
        "import numpy as np, candle_convert as cc\n"
        "from candle_convert.runtime.cuda.backend import CudaBackend\n"
        f"graph = cc.open({str(model)!r})\n"
        "program = CudaBackend('cuda', memory=100).program(graph)\n"
        "try:\n"
        "    program.run([np.ones((2, 4), np.float32)])\n"
        "except cc.LimitError as error:\n"
        "    print(error.code, error.message)\n"
    )
    refused = run_script(script, card=False)
    assert refused.startswith("E-DEVICE-MEMORY")
    assert "(48 of weights" in refused


def test_a_session_on_the_device():
    found = run_script(DEVICE_SCRIPTS / "session_on_device.py").splitlines()
    assert found == ["taps", "arrays stay on the device", "E-OP-INDEX", "threads"]


def test_layers_that_stay_on_the_cpu(model):
    assert run_script(DEVICE_SCRIPTS / "layer_offload.py").splitlines() == ["layers"]
    for wrong in (["--gpu-layers", "2"], ["--device", "cuda", "--gpu-layers", "some"], ["--max-device-memory", "1GiB"]):
        assert run(["run", str(model), *wrong]) == 2
