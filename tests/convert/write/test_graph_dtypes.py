"""ONNX in every dtype that ``--dtype`` offers: the checker and onnxruntime take it, and it computes the f32 results."""

import json
import shutil
from pathlib import Path

import candle_convert as cc
import numpy as np
import onnx
import onnxruntime
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.convert.write.graph_dtypes import STORED, TAKEN
from candle_convert.runtime.passes.precision.mixed_precision import paired_states
from candle_convert.tests.builders import architecture_checkpoints, tiny_llama
from candle_convert.tests.builders.networks import NETWORKS

FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
CUT, LENGTH = 6, 8
NAMES = architecture_checkpoints.names()
OTHERS = ["f32", "auto", *STORED]


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def fed(given, ids, past, total):
    batch, length = ids.shape
    known = {
        "input_ids": ids,
        "attention_mask": np.ones((batch, total), np.int64),
        "position_ids": np.arange(total - length, total)[None].repeat(batch, 0),
    }
    shapes = {
        item.name: [batch if dim == "batch_size" else 0 if isinstance(dim, str) else dim for dim in item.shape]
        for item in given
    }
    return {
        item.name: past.get(item.name, known.get(item.name, np.zeros(shapes[item.name], FLOATS.get(item.type))))
        for item in given
    }


def decoded(path, ids):
    """Logits of a prompt and of the tokens behind it, one by one with the cache that the run before gave."""
    runner = session(path)
    given, names = runner.get_inputs(), [item.name for item in runner.get_outputs()]
    states = paired_states([item.name for item in given], names)
    pieces, past = [], {}
    for start, stop in ((0, CUT), *((at, at + 1) for at in range(CUT, ids.shape[1]))):
        found = dict(zip(names, runner.run(None, fed(given, ids[:, start:stop], past, stop)), strict=True))
        past = {name: found[result] for name, result in states.items()}
        pieces.append(found["logits"])
    return np.concatenate(pieces, axis=1)


def errors(got, want):
    """The largest difference of each token's logits, relative to the largest of all."""
    return np.abs(got.astype(np.float32) - want).max(axis=-1).reshape(-1) / np.abs(want).max()


def checked(path):
    onnx.checker.check_model(str(path), full_check=True)
    assert run(["check", str(path), "-q"]) == 0


def exported(source, dtype, folder):
    cc.convert(source, folder, to="onnx", dtype=dtype)
    checked(folder / "model.onnx")
    return folder / "model.onnx"


def with_weights_of(path, whole):
    """The f32 model with weights that are those of another one, which are its own rounded."""
    model, kinds = onnx.load(whole), onnx.helper.tensor_dtype_to_np_dtype
    stored = {item.name: item for item in onnx.load(path).graph.initializer}
    for item in model.graph.initializer:
        other = stored[item.name]
        if other.data_type != item.data_type:
            array = onnx.numpy_helper.to_array(item)
            rounded = onnx.numpy_helper.to_array(other)
            assert rounded.dtype == kinds(other.data_type)
            assert np.array_equal(rounded, array.astype(rounded.dtype))
            item.CopyFrom(onnx.numpy_helper.from_array(rounded.astype(np.float32), item.name))
    onnx.save(model, whole)
    return whole


WIDE = ("gemma2", "gemma3", "gemma3n", "gemma4")
"""Trained models of these give NaN in f16: the residual exceeds its range. Their weights are f16, and the graph
computes in f32."""


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", NAMES)
def test_every_architecture(name, tmp_path, full):
    vocabulary = architecture_checkpoints.write(name, tmp_path / "source")
    ids = np.random.default_rng(0).integers(3, vocabulary, (2, LENGTH))
    at = NAMES.index(name) % len(OTHERS)
    for dtype in ("f16", *(OTHERS if full else OTHERS[at : at + 1])):
        path = exported(tmp_path / "source", dtype, tmp_path / dtype)
        found = decoded(path, ids)
        if dtype == "f16":
            assert found.dtype == (np.float32 if name in WIDE else np.float16)
            apart = errors(found, models.load(tmp_path / "source", threads=1).logits(ids))
            assert np.median(apart) <= 5e-3, "a token whose experts are others by rounding is an exception"
        else:
            whole = exported(tmp_path / "source", None, tmp_path / f"{dtype}-whole")
            assert errors(found, decoded(with_weights_of(path, whole), ids)).max() <= 1e-5
        if not full and at:
            continue
        ours = models.load(path, threads=1)
        first, cache = ours.step(ids[:, :CUT])
        rest, _ = ours.step(ids[:, CUT:], cache)
        assert np.median(errors(np.concatenate([first, rest], axis=1), found.astype(np.float32))) <= (
            5e-3 if dtype == "f16" else 1e-4
        )


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3", "phi", "gpt2"])
def test_f16_is_as_close_as_torch_in_half(name, tmp_path):
    torch = pytest.importorskip("torch")
    case = architecture_checkpoints.known()[name]
    reference = architecture_checkpoints.made(case, 0, tmp_path / "source")
    ids = np.random.default_rng(1).integers(3, 90, (2, LENGTH))
    with torch.no_grad():
        want = reference(input_ids=torch.tensor(ids)).logits.numpy()
        half = reference.half()(input_ids=torch.tensor(ids)).logits.float().numpy()
    found = decoded(exported(tmp_path / "source", "f16", tmp_path / "f16"), ids)
    assert errors(found, want).max() <= 3 * errors(half, want).max()


@pytest.mark.parametrize("opset", [17, 21, 24])
@pytest.mark.parametrize("name", ["llama", "gpt_oss", "mamba"])
def test_older_and_newer_opsets(name, opset, tmp_path):
    vocabulary = architecture_checkpoints.write(name, tmp_path / "source")
    ids = np.random.default_rng(0).integers(3, vocabulary, (1, LENGTH))
    cc.convert(tmp_path / "source", tmp_path / "out", to="onnx", dtype="f16", opset=opset)
    checked(tmp_path / "out" / "model.onnx")
    found = decoded(tmp_path / "out" / "model.onnx", ids)
    assert np.median(errors(found, models.load(tmp_path / "source", threads=1).logits(ids))) <= 5e-3


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [None, *TAKEN, "auto"])
@pytest.mark.parametrize("source", ["gguf", "q8_0", "f16", "bf16", "f64", "f8_e4m3"])
def test_every_source_generates(source, dtype, tmp_path, capsys):
    """GGUF with and without blocks, and directories of every dtype."""
    path = tiny_llama.written(tmp_path / "model.gguf")
    if source == "q8_0":
        assert run(["quantize", str(path), str(tmp_path / "q.gguf"), "Q8_0", "-q"]) == 0
        path = tmp_path / "q.gguf"
    elif source != "gguf":
        cc.convert(path, tmp_path / "source", to="safetensors", dtype=source)
        path = tmp_path / "source"
    out = exported(path, dtype, tmp_path / "out")
    ids = np.random.default_rng(0).integers(3, tiny_llama.COUNT, (1, LENGTH))
    coarse = "f8_e4m3" in (source, dtype) or "f8" in str(dtype)
    assert np.median(errors(decoded(out, ids), models.load(path, threads=1).logits(ids))) <= (0.5 if coarse else 2e-2)
    assert run(["generate", str(tmp_path / "out"), "-p", "Once", "-n", "2", "--temp", "0", "--threads", "1"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("dtype", ["i8", "u4", "bool", "c64", "f4", "f8_e8m0", "f6_e2m3"])
@pytest.mark.parametrize("how", [["--dtype", "{}"], ["--tensor-type", "embed={}"]], ids=lambda how: how[0])
def test_other_types_are_refused_before_anything_is_written(dtype, how, tmp_path, capsys):
    path = tiny_llama.written(tmp_path / "model.gguf")
    words = [word.format(dtype) for word in how]
    assert run(["convert", str(path), str(tmp_path / "out"), "-t", "onnx", *words, "--json"]) == 4
    told = json.loads(capsys.readouterr().out)["error"]
    assert told["code"] == "E-ONNX-DTYPE"
    assert dtype in told["message"]
    assert "quantize" in told["hint"]
    assert not (tmp_path / "out").exists()


def test_types_of_single_weights(tmp_path):
    path = tiny_llama.written(tmp_path / "model.gguf")
    ids = np.random.default_rng(0).integers(3, tiny_llama.COUNT, (1, LENGTH))
    want = models.load(path, threads=1).logits(ids)
    for dtype in (None, "f16"):
        out = tmp_path / f"{dtype}"
        cc.convert(path, out, to="onnx", dtype=dtype, tensor_types=((r"mlp\.up", "bf16"), (r"embed", "f32")))
        checked(out / "model.onnx")
        kinds = {item.name: item.data_type for item in onnx.load(out / "model.onnx").graph.initializer}
        assert kinds["layers.0.mlp.up.weight"] == onnx.TensorProto.BFLOAT16
        assert kinds["embed.weight"] == onnx.TensorProto.FLOAT
        assert kinds["layers.0.attn.q.weight"] == (
            onnx.TensorProto.FLOAT if dtype is None else onnx.TensorProto.FLOAT16
        )
        assert errors(decoded(out / "model.onnx", ids), want).max() <= 2e-2


@pytest.mark.parametrize("dtype", [*TAKEN, "auto"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_graphs_keep_their_signature(name, dtype, tmp_path):
    make, feeds = NETWORKS[name]
    onnx.save(make(), tmp_path / "in.onnx")
    cc.convert(tmp_path / "in.onnx", tmp_path / "out.onnx", dtype=dtype)
    checked(tmp_path / "out.onnx")
    before, after = session(tmp_path / "in.onnx"), session(tmp_path / "out.onnx")
    for one, other in zip(
        before.get_inputs() + before.get_outputs(), after.get_inputs() + after.get_outputs(), strict=True
    ):
        assert (one.name, one.type) == (other.name, other.type)
    share = 0.3 if dtype.startswith("f8") else 1e-2 if dtype in ("f16", "bf16", "auto") else 1e-6
    for want, got in zip(before.run(None, feeds()[0]), after.run(None, feeds()[0]), strict=True):
        assert np.abs(want - got).max() <= share * np.abs(want).max()
    if dtype == "f16":
        assert Path(tmp_path / "out.onnx").stat().st_size < 0.75 * Path(tmp_path / "in.onnx").stat().st_size
        cc.convert(tmp_path / "out.onnx", tmp_path / "back.onnx", dtype="f32")
        checked(tmp_path / "back.onnx")
        assert onnx.TensorProto.FLOAT16 not in {
            item.data_type for item in onnx.load(tmp_path / "back.onnx").graph.initializer
        }


HELPER = onnx.helper


def graph_model(nodes, inputs, outputs, weights=(), opset=21):
    made = HELPER.make_graph(
        nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(array, name) for name, array in weights]
    )
    return HELPER.make_model(made, opset_imports=[HELPER.make_opsetid("", opset)], ir_version=10)


def tensor(name, kind, shape):
    return HELPER.make_tensor_value_info(name, kind, shape)


def masked_attention():
    """Padding is masked by the least f32, which is minus infinity in f16; one row has nothing but padding."""
    nodes = [
        HELPER.make_node("Cast", ["mask"], ["seen"], to=1),
        HELPER.make_node("Sub", ["one", "seen"], ["hidden"]),
        HELPER.make_node("Mul", ["hidden", "least"], ["bias"]),
        HELPER.make_node("MatMul", ["x", "w"], ["q"]),
        HELPER.make_node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        HELPER.make_node("MatMul", ["q", "k"], ["scores"]),
        HELPER.make_node("Add", ["scores", "bias"], ["masked"]),
        HELPER.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        HELPER.make_node("MatMul", ["weights", "x"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = [
        ("one", np.float32([1])),
        ("least", np.float32([np.finfo(np.float32).min])),
        ("w", rng.normal(size=(8, 8)).astype(np.float32)),
    ]
    made = graph_model(
        nodes, [tensor("x", 1, [2, 4, 8]), tensor("mask", 7, [2, 1, 4])], [tensor("y", 1, [2, 4, 8])], weights
    )
    return made, {
        "x": rng.normal(size=(2, 4, 8)).astype(np.float32),
        "mask": np.array([[[1, 1, 0, 0]], [[0, 0, 0, 0]]]),
    }


def tiny_epsilon():
    """A root mean square norm of small numbers, whose epsilon is 0 in f16."""
    nodes = [
        HELPER.make_node("Pow", ["x", "two"], ["square"]),
        HELPER.make_node("ReduceMean", ["square", "axes"], ["mean"]),
        HELPER.make_node("Add", ["mean", "eps"], ["sum"]),
        HELPER.make_node("Sqrt", ["sum"], ["root"]),
        HELPER.make_node("Div", ["x", "root"], ["z"]),
        HELPER.make_node("Mul", ["z", "scale"], ["n"]),
        HELPER.make_node("MatMul", ["n", "w"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = [
        ("two", np.float32(2)),
        ("axes", np.array([-1])),
        ("eps", np.float32(1e-12)),
        ("scale", rng.normal(size=8).astype(np.float32)),
        ("w", rng.normal(size=(8, 8)).astype(np.float32)),
    ]
    made = graph_model(nodes, [tensor("x", 1, [4, 8])], [tensor("y", 1, [4, 8])], weights)
    return made, {
        "x": np.concatenate([rng.normal(size=(2, 8)) * 1e-3, rng.normal(size=(1, 8)) * 400, np.zeros((1, 8))]).astype(
            np.float32
        )
    }


def far_positions():
    """Rotary angles of positions that f16 cannot tell apart."""
    nodes = [
        HELPER.make_node("Cast", ["at"], ["place"], to=1),
        HELPER.make_node("MatMul", ["frequencies", "place"], ["angles"]),
        HELPER.make_node("Cos", ["angles"], ["cos"]),
        HELPER.make_node("Transpose", ["cos"], ["turned"], perm=[0, 2, 1]),
        HELPER.make_node("MatMul", ["x", "w"], ["q"]),
        HELPER.make_node("Mul", ["q", "turned"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = [
        ("frequencies", (10000.0 ** -(np.arange(8) / 8)).astype(np.float32).reshape(1, 8, 1)),
        ("w", rng.normal(size=(8, 8)).astype(np.float32)),
    ]
    made = graph_model(
        nodes, [tensor("x", 1, [1, 3, 8]), tensor("at", 7, [1, 1, 3])], [tensor("y", 1, [1, 3, 8])], weights
    )
    return made, {"x": rng.normal(size=(1, 3, 8)).astype(np.float32), "at": np.array([[[5, 4097, 70001]]])}


@pytest.mark.parametrize("make", [masked_attention, tiny_epsilon, far_positions])
def test_what_f16_cannot_say_stays_f32(make, tmp_path):
    model, feeds = make()
    onnx.save(model, tmp_path / "in.onnx")
    cc.convert(tmp_path / "in.onnx", tmp_path / "out.onnx", dtype="f16")
    checked(tmp_path / "out.onnx")
    (want,), (got,) = (session(tmp_path / name).run(None, feeds) for name in ("in.onnx", "out.onnx"))
    assert np.isfinite(got).all()
    assert (np.abs(got - want).max(axis=-1) <= 4e-3 * np.abs(want).max(axis=-1) + 1e-6).all()


def test_external_data_and_a_dry_run(tmp_path, capsys):
    path = tiny_llama.written(tmp_path / "model.gguf")
    words = ["convert", str(path), str(tmp_path / "out"), "-t", "onnx", "--dtype", "f16", "--external-data", "always"]
    assert run([*words, "--dry-run", "-q"]) == 0
    assert not (tmp_path / "out").exists()
    assert run([*words, "-q"]) == 0
    checked(tmp_path / "out" / "model.onnx")
    shutil.move(tmp_path / "out", tmp_path / "moved")
    session(tmp_path / "moved" / "model.onnx")
