"""quantize and calibrate on networks: the file runs in onnxruntime, and what is printed about it is true."""

import json

import candle_convert as cc
import numpy as np
import onnx
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.networks import NETWORKS
from candle_convert.tests.oracles.exact_onnxruntime import exact_session


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, (build, samples) in NETWORKS.items():
        onnx.save(build(), f"{name}.onnx")
        (tmp_path / name).mkdir()
        for index, sample in enumerate(samples()):
            np.savez(f"{name}/{index}.npz", **sample)
    return tmp_path


def called(capsys, *words):
    capsys.readouterr()
    code = run([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def ort(path, feeds):
    session = exact_session(path)
    return [session.run(None, feed) for feed in feeds]


ROWS = [
    ("encoder", ["int8"], "dynamic", 25),
    ("encoder", ["int8", "--calib", "encoder", "--per-channel"], "static", 15),
    ("encoder", ["int8", "--activation-type", "none"], "blocks", 33),
    ("encoder", ["int4", "--block-size", "16", "--symmetric"], "blocks", 12),
    ("encoder", ["int4", "--quant-format", "qdq"], "blocks", 10),
    ("encoder", ["fp16"], "half", 50),
    ("encoder", ["fp8"], "float8", 20),
    ("encoder", ["--weight-type", "fp8", "--per-channel", "--opset", "21"], "float8", 20),
    ("classifier", ["fp8", "--per-channel"], "float8", 20),
    ("recurrent", ["fp8"], "float8", 20),
    ("classifier", ["uint8", "--per-channel"], "dynamic", 28),
    (
        "classifier",
        ["uint8", "--calib", "classifier", "--activation-type", "int8", "--method", "percentile"],
        "static",
        17,
    ),
    ("classifier", ["F16", "--opset", "21"], "half", 50),
    ("classifier", ["uint8", "--calib", "classifier", "--quant-format", "qoperator", "--per-channel"], "static", 17),
    ("encoder", ["int8", "--calib", "encoder", "--quant-format", "qoperator"], "static", 15),
    ("recurrent", ["int8", "--exclude-nodes", "^y$"], "dynamic", 25),
]


def test_weights_that_are_inputs_become_constants(folder, capsys):
    model = onnx.load("classifier.onnx")
    fed = [value.name for value in model.graph.input]
    for weight in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    onnx.save(model, "inputs.onnx")
    made = [called(capsys, "quantize", f"{name}.onnx", f"{name}8.onnx", "int8") for name in ("classifier", "inputs")]
    assert [(code, told["quantized"]) for code, told in made] == [(0, made[0][1]["quantized"])] * 2
    assert [value.name for value in onnx.load("inputs8.onnx").graph.input] == fed
    feeds = NETWORKS["classifier"][1]()
    pairs = zip(ort("classifier8.onnx", feeds), ort("inputs8.onnx", feeds), strict=True)
    assert all(np.array_equal(one, other) for both in pairs for one, other in zip(*both, strict=True))


@pytest.mark.parametrize(
    ("name", "words", "kind", "least"), ROWS, ids=lambda item: " ".join(item) if isinstance(item, list) else None
)
def test_quantize(name, words, kind, least, folder, capsys):
    code, told = called(capsys, "quantize", f"{name}.onnx", "out.onnx", *words)
    assert code == 0
    assert told["kind"] == kind
    assert told["weights_bytes"]["after"] < 0.75 * told["weights_bytes"]["before"]
    assert all(item["why"].endswith(f"does not support {item['operator']}") for item in told["kept"])
    assert [item["operator"] for item in told["kept"]] == (["Gather"] if (name, kind) == ("encoder", "static") else [])
    feeds = NETWORKS[name][1]()
    pairs = list(zip(ort(f"{name}.onnx", feeds), ort("out.onnx", feeds), strict=True))
    for index, loss in enumerate(told["loss"]):
        noise = sum(((one[index].astype(np.float64) - other[index]) ** 2).sum() for one, other in pairs)
        found = 10 * np.log10(sum((one[index].astype(np.float64) ** 2).sum() for one, _ in pairs) / noise)
        assert found >= least
        if kind == "static":
            assert abs(loss["snr_db"] - found) < 1.5
        assert loss["snr_db"] >= least - 4


def test_bf16_runs_here(folder, capsys):
    code, told = called(capsys, "quantize", "encoder.onnx", "out.onnx", "bf16")
    assert code == 0
    assert min(loss["snr_db"] for loss in told["loss"]) > 30
    assert {item.data_type for item in onnx.load("out.onnx").graph.initializer} <= {
        onnx.TensorProto.BFLOAT16,
        onnx.TensorProto.INT64,
    }


def test_calibrate_once_and_quantize_by_every_method(folder, capsys):
    code, told = called(capsys, "calibrate", "classifier.onnx", "-d", "classifier", "-o", "ranges.json")
    assert code == 0
    assert told["samples"] == 4
    image = np.concatenate([sample["image"] for sample in NETWORKS["classifier"][1]()])
    assert told["values"]["image"]["high"] == pytest.approx(float(image.max()))
    found = {}
    for method in ("minmax", "entropy", "percentile", "mse"):
        words = ("classifier.onnx", "out.onnx", "int8", "--method", method, "-f")
        for calib in ("ranges.json", "classifier"):
            code, _ = called(capsys, "quantize", *words, "--calib", calib)
            assert code == 0
            found[method, calib] = (folder / "out.onnx").read_bytes()
        assert found[method, "ranges.json"] == found[method, "classifier"]
    assert len(set(found.values())) >= 3


def test_calibrate_goes_on(folder, capsys):
    feeds = NETWORKS["encoder"][1]()
    (folder / "tokens").mkdir()
    for index, feed in enumerate(feeds):
        np.save(f"tokens/{index}.npy", feed["tokens"])
    (folder / "first").mkdir()
    (folder / "last").mkdir()
    for index in range(4):
        (folder / ("first" if index < 2 else "last") / f"{index}.npy").write_bytes(
            (folder / f"tokens/{index}.npy").read_bytes()
        )
    assert called(capsys, "calibrate", "encoder.onnx", "-d", "tokens", "-o", "whole.json")[0] == 0
    assert called(capsys, "calibrate", "encoder.onnx", "-d", "first", "-o", "parts.json")[0] == 0
    assert called(capsys, "calibrate", "encoder.onnx", "-d", "last", "-o", "parts.json", "--resume")[0] == 0
    assert (folder / "whole.json").read_bytes() == (folder / "parts.json").read_bytes()


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("name", "operator", "count"), [("classifier", "QLinearConv", 4), ("encoder", "MatMulInteger", 16)]
)
def test_integer_operators_compute_what_their_pairs_do(name, operator, count, activation, folder, capsys):
    words = ("quantize", f"{name}.onnx", "int8", "--calib", name, "--activation-type", activation)
    for form in ("qdq", "qoperator"):
        code, _ = called(capsys, *words[:2], f"{form}.onnx", *words[2:], "--quant-format", form)
        assert code == 0
    kinds = [node.op_type for node in onnx.load("qoperator.onnx").graph.node]
    assert kinds.count(operator) >= (count if (name, activation) != ("classifier", "int8") else 1)
    feeds = NETWORKS[name][1]()
    for one, other in zip(ort("qdq.onnx", feeds), ort("qoperator.onnx", feeds), strict=True):
        for pairs, integers in zip(one, other, strict=True):
            assert np.abs(pairs - integers).max() <= 0.05 * np.abs(pairs).max()


def test_dry_run_measures_and_writes_nothing(folder, capsys):
    code, told = called(capsys, "quantize", "classifier.onnx", "out.onnx", "int8", "--dry-run")
    assert code == 0
    assert told["dry_run"]
    assert told["loss"][0]["output"] == "scores"
    assert not (folder / "out.onnx").exists()


def test_nodes_are_chosen_by_name(folder, capsys):
    _, told = called(
        capsys, "quantize", "encoder.onnx", "out.onnx", "int8", "--nodes", "^matmul", "--exclude-nodes", "matmul2$"
    )
    left = {node.input[1] for node in onnx.load("out.onnx").graph.node if node.op_type in ("MatMul", "Gemm")}
    assert len(told["quantized"]) >= 10
    assert "head.w" in left


def test_what_stays_is_said(folder, capsys):
    words = ("quantize", "encoder.onnx", "out.onnx", "int4", "--block-size", "128")
    code, told = called(capsys, *words)
    assert code == 0
    assert [(item["operator"], item["why"]) for item in told["kept"]] == [
        ("Gather", "rows of 64 are not a multiple of the block size 128")
    ]
    code, told = called(capsys, *words, "--no-fallback", "-f")
    assert (code, told["error"]["code"]) == (5, "E-QUANT-FALLBACK")


REFUSED = [
    (["q9"], 2, "E-QUANT-TYPE"),
    ([], 2, "E-QUANT-TYPE"),
    (["int8", "--weight-type", "int4"], 2, "E-QUANT-TYPE"),
    (["int4", "--activation-type", "int8"], 2, "E-OPTION-NODES"),
    (["int8", "--activation-type", "int8"], 2, "E-OPTION-NODES"),
    (["int8", "--quant-format", "nbits"], 2, "E-OPTION-NODES"),
    (["fp16", "--calib", "encoder"], 2, "E-OPTION-NODES"),
    (["int4", "--per-channel"], 2, "E-OPTION-NODES"),
    (["fp8", "--activation-type", "int8"], 2, "E-OPTION-NODES"),
    (["fp8", "--quant-format", "nbits"], 2, "E-OPTION-NODES"),
    (["fp8", "--calib", "encoder"], 2, "E-OPTION-NODES"),
    (["int8", "--imatrix", "x.gguf"], 2, "E-OPTION-NODES"),
    (["int8", "--device", "cuda"], 2, "E-OPTION-NODES"),
    (["int8", "--nodes", "("], 2, "E-PATTERN"),
    (["int8", "--nodes", "^nothing$"], 2, "E-QUANT-NODES"),
    (["int8", "--calib", "classifier"], 2, "E-CALIB-DATA"),
    (["int8", "--calib", "empty"], 2, "E-CALIB-DATA"),
    (["int8", "--calib", "wrong.json"], 3, "E-RANGES-JSON"),
    (["int8", "--calib", "deep.json"], 3, "E-RANGES-JSON"),
    (["int8", "--calib", "nowhere.json"], 7, "E-IO-MISSING"),
]


@pytest.mark.parametrize(
    ("words", "exit_code", "error"), REFUSED, ids=lambda item: " ".join(item) if isinstance(item, list) else None
)
def test_refused(words, exit_code, error, folder, capsys):
    (folder / "empty").mkdir()
    (folder / "wrong.json").write_text('{"schema": "x"}')
    value = {"low": -1, "high": 1, "reach": 1, "odd": 0, "first": 4000, "counts": [1] * 4096}
    (folder / "deep.json").write_text(
        json.dumps({"schema": "candle-convert/ranges/1", "samples": 1, "values": {"x": value}})
    )
    code, told = called(capsys, "quantize", "encoder.onnx", "out.onnx", *words)
    assert (code, told["error"]["code"]) == (exit_code, error)
    assert not (folder / "out.onnx").exists()


def test_options_for_networks_are_refused_for_weights(folder, capsys):
    import candle_convert as cc

    cc.save_file({"a.weight": np.ones((2, 32), np.float32)}, "m.safetensors")
    code, told = called(capsys, "quantize", "m.safetensors", "q.gguf", "q8_0", "--symmetric")
    assert (code, told["error"]["code"]) == (2, "E-OPTION-NODES")


@pytest.mark.parametrize("name", ["encoder", "classifier", "recurrent"])
def test_weights_in_float8_pass_the_checker_and_run_here(folder, capsys, name):
    assert called(capsys, "quantize", f"{name}.onnx", "out.onnx", "fp8", "--per-channel")[0] == 0
    made = onnx.load("out.onnx")
    onnx.checker.check_model(made, full_check=True)
    kinds = [item.data_type for item in made.graph.initializer]
    assert (
        kinds.count(onnx.TensorProto.FLOAT8E4M3FN)
        == sum(node.op_type == "DequantizeLinear" for node in made.graph.node)
        >= 2
    )
    assert made.opset_import[0].version == 19
    feeds = NETWORKS[name][1]()
    for feed, theirs in zip(feeds, ort("out.onnx", feeds), strict=True):
        for one, other in zip(cc.InferenceSession("out.onnx").run(None, feed), theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
