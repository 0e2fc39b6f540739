"""Quantizing from Python: the same files as the command's, plans that leave the model alone, and arrays to bytes and
back."""

import hashlib
import json
from pathlib import Path

import candle_convert as cc
import gguf
import ml_dtypes
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.tests.builders.paths import VECTORS
from candle_convert.tests.builders.reproducible_models import MODELS, write_importance, write_model

DIGESTS = json.loads((VECTORS / "quantized_digests.json").read_text())
RNG = np.random.default_rng(2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a model and its importance matrix."""
    write_importance(tmp_path / "imatrix.gguf", write_model(tmp_path / "model.gguf", **MODELS["llama"]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


PURE = cc.Recipe("Q4_K_M", pure=True)
TYPED = cc.Recipe("Q6_K", output_type="q8_0", embedding_type="q4_1")
PATTERNS = cc.Recipe("Q4_0", {"attn_v": "q8_0", "FFN_(up|gate)": "iq4_nl"})
KEYS = cc.Recipe("Q8_0", override_kv=("general.name=str:Other", "llama.context_length=int:128"))


@pytest.mark.parametrize(
    ("recipe", "importance", "name"),
    [
        ("Q4_K_M", None, "llama Q4_K_M"),
        ("Q4_K_M", "imatrix.gguf", "llama --imatrix imatrix.gguf Q4_K_M"),
        (PURE, None, "llama --pure Q4_K_M"),
        (TYPED, None, "llama --output-tensor-type q8_0 --token-embedding-type q4_1 Q6_K"),
        (PATTERNS, None, "llama --tensor-type attn_v=q8_0 --tensor-type FFN_(up|gate)=iq4_nl Q4_0"),
        (KEYS, None, "llama --override-kv general.name=str:Other --override-kv llama.context_length=int:128 Q8_0"),
        (
            cc.Recipe("Q4_K_M", imatrix="imatrix.gguf", exclude_weights=("ffn",)),
            None,
            "llama --imatrix imatrix.gguf --exclude-weights ffn Q4_K_M",
        ),
    ],
)
def test_files_are_those_of_llama_quantize(folder, recipe, importance, name):
    report = cc.quantize("model.gguf", "out.gguf", recipe, imatrix=importance)
    assert digest("out.gguf") == DIGESTS[name]
    assert report.outputs == ["out.gguf"]


def test_an_open_model_is_left_as_it_is_and_can_be_quantized_again(folder):
    model = cc.open("model.gguf")
    before = (
        {name: tensor.dtype for name, tensor in model.weights.items()},
        list(model.weights),
        dict(model.metadata),
        list(model.notes),
    )
    plan = cc.plan(model, cc.Recipe("Q4_K_M", {r"attn_v\.": "q6_k"}, imatrix="imatrix.gguf", on_fallback="error"))
    shown = str(plan)
    assert "--tensor-type attn_v" in shown
    assert "total" in shown
    assert plan.bits_per_weight == pytest.approx(
        8 * sum(t.nbytes for t in cc.open(execute(plan)).weights.values()) / model_elements(model)
    )
    assert (
        {name: tensor.dtype for name, tensor in model.weights.items()},
        list(model.weights),
        dict(model.metadata),
        list(model.notes),
    ) == before
    again = cc.quantize(model, "again.gguf", "Q8_0", force=True, max_memory="64MiB", threads=1)
    assert digest("again.gguf") == DIGESTS["llama Q8_0"]
    assert again.recipe == "q8_0"


def execute(plan):
    return plan.execute("q.gguf", resume=True, progress=None).outputs[0]


def model_elements(model):
    return sum(tensor.count for tensor in model.weights.values())


def test_reports_say_what_was_lost(folder):
    report = cc.quantize("model.gguf", "out.gguf", "Q4_K_M", measure=True)
    entry = report.types["blk.0.attn_q.weight"]
    assert (entry["from"], entry["type"], entry["rule"]) == ("f16", "q4_k", "base")
    before = cc.open("model.gguf")["blk.0.attn_q.weight"].numpy().astype(np.float64)
    reader = {tensor.name: tensor for tensor in gguf.GGUFReader("out.gguf").tensors}["blk.0.attn_q.weight"]
    error = before - gguf.quants.dequantize(reader.data, reader.tensor_type)
    assert entry["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    assert entry["max_error"] == pytest.approx(np.abs(error).max(), rel=1e-5)
    assert entry["snr_db"] == pytest.approx(10 * np.log10((before**2).sum() / (error**2).sum()), rel=1e-5)
    assert report.bits_per_weight == pytest.approx(4.95, abs=0.3)


def test_targets_and_their_recipe(folder):
    plan = cc.plan("model.gguf", cc.Recipe(target_bpw=4.5))
    assert 4.3 < plan.bits_per_weight <= 4.5
    plan.execute("a.gguf")
    plan.save_recipe("mine.toml")
    cc.quantize("model.gguf", "b.gguf", "mine.toml")
    cc.quantize("model.gguf", "c.gguf", cc.Recipe(target_bpw=4.5))
    assert digest("a.gguf") == digest("b.gguf") == digest("c.gguf")
    cc.quantize("model.gguf", "d.gguf", cc.Recipe("auto", target_size="700KiB"))
    assert 640 * 1024 < Path("d.gguf").stat().st_size <= 700 * 1024
    assert cc.verify("model.gguf", "d.gguf").ok


@pytest.mark.parametrize(
    "recipe",
    [
        cc.Recipe("nothing"),
        cc.Recipe(),
        cc.Recipe("Q4_K_M", on_fallback="maybe"),
        cc.Recipe("Q4_K_M", {"(": "q8_0"}),
        cc.Recipe("Q4_0", {"x": "q9"}),
        cc.Recipe("Q4_K_M", target_bpw=4),
        cc.Recipe(target_bpw=4, target_size=4),
        cc.Recipe("COPY", {"x": "q8_0"}),
        cc.Recipe(target_bpw=0.1),
        cc.Recipe("Q4_0", prune_layers=(9,)),
        cc.Recipe("Q4_0", override_kv=("a=b",)),
        cc.Recipe("Q4_0", target_size="much"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, recipe):
    with pytest.raises(cc.UsageError):
        cc.quantize("model.gguf", "out.gguf", recipe)
    assert not Path("out.gguf").exists()


def test_plans_of_other_things_are_refused(folder):
    with pytest.raises(cc.UsageError):
        cc.plan(cc.open("model.gguf"), "out.gguf")
    with pytest.raises(cc.UsageError):
        cc.plan(["model.gguf", "model.gguf"], cc.Recipe("Q4_0"))
    with pytest.raises(cc.UsageError):
        cc.quantize("model.gguf", "out.gguf", "Q4_0", colour=1)


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4"])
def test_arrays_are_encoded_and_decoded_as_gguf_py_does(name):
    values = RNG.standard_normal((3, 4, 512)).astype(np.float32)
    kind = gguf.GGMLQuantizationType[name.upper()]
    data = cc.encode(values, name)
    assert np.array_equal(data, gguf.quants.quantize(values, kind))
    back = cc.decode(data, name, values.shape)
    assert back.dtype == np.float32
    assert np.array_equal(back, gguf.quants.dequantize(data, kind))
    assert np.array_equal(cc.decode(data.tobytes(), name, values.shape), back)
    assert np.array_equal(cc.encode(values.astype(np.float64), name), data)


ENCODED = [codec.dtype.name for codec in codecs().values() if codec.encoder is not None]


@pytest.mark.parametrize("name", ENCODED)
def test_every_type_takes_importance_of_each_matrix(name):
    values, importance = RNG.standard_normal((2, 3, 256)).astype(np.float32), RNG.random((2, 256)) + 0.1
    data = cc.encode(values, name, importance)
    assert data.shape[:2] == (2, 3)
    for number in range(2):
        assert np.array_equal(data[number], cc.encode(values[number], name, importance[number]))
    assert cc.decode(data, name, values.shape).shape == values.shape


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("f8_e4m3", ml_dtypes.float8_e4m3fn), ("i8", np.int8)],
)
def test_plain_types(name, kind):
    values = np.array([[1, -2, 3], [100, 0, -128]])
    values = values if name == "i8" else values.astype(np.float32) / 3
    data = cc.encode(values, name)
    assert data.tobytes() == values.astype(kind).tobytes()
    back = cc.decode(data, name, (2, 3))
    assert back.dtype == kind
    assert np.array_equal(back, values.astype(kind))


@pytest.mark.parametrize("shape", [(0, 256), (4, 0), (0,)])
def test_arrays_without_elements(shape):
    data = cc.encode(np.zeros(shape, np.float32), "q4_k")
    assert data.size == 0
    assert cc.decode(data, "q4_k", shape).shape == shape
    assert cc.decode(cc.encode(np.zeros(shape, np.float32), "bf16"), "bf16", shape).shape == shape


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: cc.encode(np.ones((2, 100)), "q4_k"), cc.FormatError),
        (lambda: cc.encode(np.float32(1), "q4_0"), cc.FormatError),
        (lambda: cc.encode(np.full((1, 32), np.nan), "q4_0"), cc.FormatError),
        (lambda: cc.encode(np.ones((1, 32)), "q4_9"), cc.UsageError),
        (lambda: cc.encode(np.ones((1, 256)), "iq2_xxs"), cc.UnsupportedError),
        (lambda: cc.encode(np.ones((1, 32)), "q4_0", np.ones(31)), cc.UsageError),
        (lambda: cc.encode(np.ones((1, 32)), "q4_0_v1"), cc.UnsupportedError),
        (lambda: cc.decode(bytes(17), "q4_0", (32,)), cc.FormatError),
        (lambda: cc.decode(bytes(18), "q4_0", (1, 33)), cc.FormatError),
        (lambda: cc.decode(bytes(18), "q4_0", (-1, 32)), cc.FormatError),
        (lambda: cc.decode(bytes(3), "bf16", (2,)), cc.FormatError),
    ],
)
def test_arrays_that_do_not_fit(call, error):
    with pytest.raises(error):
        call()


def test_the_command_saves_the_recipe_that_the_library_reads(folder):
    assert run(["quantize", "model.gguf", "a.gguf", "auto", "--target-bpw", "5", "--save-recipe", "r.toml", "-q"]) == 0
    cc.quantize("model.gguf", "b.gguf", "r.toml")
    assert digest("a.gguf") == digest("b.gguf")
