"""verify: files of other libraries pass, every kind of damage fails, and the bounds hold for all types on unlike
numbers."""

import hashlib
import json

import candle_convert as cc
import gguf
import ml_dtypes
import numpy as np
import pytest
import torch
from candle_convert.convert.cli.main import run
from candle_convert.convert.compare.certificate import verify
from candle_convert.convert.compare.error_bound import BLOCK_BOUNDS
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.block_codec import codec_of, codecs, decoded, encoded
from candle_convert.runtime.tensor.dtype import BLOCK_TYPES, DTYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor

RNG = np.random.default_rng(5)
VALUES = RNG.standard_normal((8, 1024)).astype(np.float32)


def graph(**weights):
    return Graph(
        weights={
            name: value if isinstance(value, StoredTensor) else StoredTensor.of(value)
            for name, value in weights.items()
        }
    )


def blocks(data, name, shape):
    return StoredTensor(DTYPES[name], shape, Held(bytes(data)))


def only(source, made, **options):
    """What is found about a model of one tensor."""
    (checked,) = verify(graph(w=source), graph(w=made), **options).tensors
    return checked


THEIRS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4")


@pytest.mark.parametrize("name", THEIRS)
def test_blocks_of_gguf_py_are_within_their_bounds(name):
    kind = gguf.GGMLQuantizationType[name.upper()]
    data = gguf.quants.quantize(VALUES, kind)
    back = gguf.quants.dequantize(data, kind)
    checked = only(VALUES, blocks(data.tobytes(), name, VALUES.shape))
    assert checked.ok
    assert checked.rmse == pytest.approx(np.sqrt(np.mean((VALUES.astype(np.float64) - back) ** 2)), rel=1e-6)
    assert checked.max_error == pytest.approx(np.abs(VALUES - back).max(), rel=1e-6)


ROWS, COLUMNS = 4, 512
NUMBERS = {
    "normal": RNG.standard_normal((ROWS, COLUMNS)),
    "heavy": RNG.standard_t(2, (ROWS, COLUMNS)),
    "uniform": RNG.uniform(-1, 1, (ROWS, COLUMNS)),
    "positive": RNG.uniform(0, 1, (ROWS, COLUMNS)),
    "shifted": RNG.standard_normal((ROWS, COLUMNS)) + 5,
    "signs": np.sign(RNG.standard_normal((ROWS, COLUMNS))),
    "sparse": np.where(np.arange(COLUMNS) % 64, 0.01, 5) * RNG.standard_normal((ROWS, COLUMNS)),
    "small": RNG.standard_normal((ROWS, COLUMNS)) * 1e-3,
    "tiny": RNG.standard_normal((ROWS, COLUMNS)) * 1e-7,
    "unlike": RNG.standard_normal((ROWS, COLUMNS)) * np.exp(RNG.standard_normal(COLUMNS)),
    "zero": np.zeros((ROWS, COLUMNS)),
    "large": RNG.standard_normal((ROWS, COLUMNS)) * 1e4,
}
IMPORTANCE = np.exp(RNG.standard_normal(COLUMNS)).astype(np.float32)
MADE = [codec.dtype.name for codec in codecs().values() if codec.encoder is not None]
SATURATED = {("nvfp4", "large")}
"""Its 8-bit scales end at 448."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MADE)
def test_bounds_hold_and_are_not_far_from_what_happens(name):
    codec = codec_of(DTYPES[name])
    used = []
    for kind, numbers in NUMBERS.items():
        values = numbers.astype(np.float32)
        for importance in (None, IMPORTANCE):
            if importance is not None or not codec.needs_importance:
                checked = only(values, blocks(encoded(codec, values, importance).tobytes(), name, values.shape))
                assert checked.ok is not ((name, kind) in SATURATED), (kind, checked)
                used.append(checked.used)
    assert max(used) > 0.5


def test_every_type_that_is_written_has_bounds():
    assert set(BLOCK_BOUNDS) == {dtype.name for dtype in BLOCK_TYPES} >= set(MADE)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("what", ["zeroed", "other", "turned", "negated"])
def test_blocks_of_other_values_fail(name, what):
    codec = codec_of(DTYPES[name])
    data = encoded(codec, VALUES, np.ones(1024, np.float32))
    if what == "zeroed":
        data[:] = encoded(codec, np.zeros_like(VALUES), np.ones(1024, np.float32))
    wrong = {
        "other": np.random.default_rng(8).standard_normal(VALUES.shape).astype(np.float32),
        "turned": VALUES[:, ::-1],
        "negated": -VALUES,
    }
    assert only(wrong.get(what, VALUES), blocks(data.tobytes(), name, VALUES.shape)).status == "beyond"


@pytest.mark.parametrize("name", ["q4_0", "q8_0", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "iq2_s"])
def test_one_damaged_block_fails(name):
    codec = codec_of(DTYPES[name])
    data = encoded(codec, VALUES, np.ones(1024, np.float32)).reshape(-1, codec.dtype.block_nbytes)
    data[5] = 0
    assert only(VALUES, blocks(data.tobytes(), name, VALUES.shape)).status == "beyond"


def test_a_scale_that_is_not_finite_fails():
    data = encoded(codec_of(DTYPES["q4_0"]), VALUES)
    data[3, :2] = (0, 0x7E)
    assert only(VALUES, blocks(data.tobytes(), "q4_0", VALUES.shape)).status == "nan"


def test_kept_nans_say_nothing_about_their_block():
    values = VALUES.copy()
    values[2, 7] = np.nan
    data = encoded(codec_of(DTYPES["q4_0"]), VALUES)
    data[2, :2] = (0, 0x7E)
    assert only(values, blocks(data.tobytes(), "q4_0", VALUES.shape)).status == "within"


def test_decoded_blocks_are_exact():
    data = encoded(codec_of(DTYPES["q4_k"]), VALUES)
    back = decoded(codec_of(DTYPES["q4_k"]), data.tobytes()).reshape(VALUES.shape)
    source = blocks(data.tobytes(), "q4_k", VALUES.shape)
    assert only(source, back).status == "equal"
    back[3, 3] *= 1.001
    assert only(source, back).status == "beyond"


FLOATS = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8_e4m3": torch.float8_e4m3fn,
    "f8_e5m2": torch.float8_e5m2,
    "f64": torch.float64,
}


@pytest.mark.parametrize("name", FLOATS)
def test_values_that_torch_rounds_are_within_theirs(name):
    numbers = np.concatenate(
        [VALUES.reshape(-1), RNG.standard_normal(1000).astype(np.float32) * 1e-7, [0, -0.0]]
    ).astype(np.float32)
    made = StoredTensor.of_torch(torch.from_numpy(numbers).to(FLOATS[name]))
    checked = only(numbers, made)
    assert checked.status == ("equal" if name == "f64" else "within")
    assert checked.used <= 0.5


def test_truncated_values_pass_and_two_steps_off_fail():
    bits = VALUES.view(np.uint32) >> 16
    assert only(VALUES, bits.astype(np.uint16).view(ml_dtypes.bfloat16)).ok
    assert only(VALUES, (bits + 2).astype(np.uint16).view(ml_dtypes.bfloat16)).status == "beyond"


def test_special_values():
    special = np.array([np.nan, np.inf, -np.inf, 1, 0], np.float32)
    assert only(special, special.astype(np.float16)).ok
    assert only(np.array([1e6], np.float32), np.array([np.inf], np.float16)).status == "nan"
    assert only(np.array([np.inf], np.float32), np.array([65504], np.float16)).status == "nan"
    assert only(np.array([np.nan], np.float32), np.array([1], np.float16)).status == "nan"


@pytest.mark.parametrize(
    ("source", "made", "status"),
    [
        (np.arange(9), np.arange(9), "equal"),
        (np.arange(9), np.arange(9).astype(np.int8), "equal"),
        (np.array([2**62 + 1]), np.array([2**62]), "changed"),
        (np.array([300]), np.array([44], np.int8), "beyond"),
        (np.array([0.5], np.float32), np.array([0.5000001], np.float32), "changed"),
        (np.array([1 + 1j], np.complex64), np.array([1 + 1.1j], np.complex64), "changed"),
        (np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float16), "equal"),
        (np.zeros((2, 4), np.float32), np.zeros((4, 2), np.float32), "shape"),
        (np.float32(3), np.float16(3), "equal"),
    ],
)  # fmt: skip
def test_other_tensors(source, made, status):
    assert only(np.asarray(source), np.asarray(made)).status == status


def test_names_samples_and_selection():
    from candle_convert.runtime.passes.weights.select import Select

    source, made = graph(a=VALUES, b=VALUES), graph(b=VALUES, c=VALUES)
    found = verify(source, made)
    assert {row.name: row.status for row in found.tensors} == {"a": "missing", "b": "equal", "c": "extra"}
    assert not found.ok
    assert {row.name for row in found.failed} == {"a", "c"}
    assert verify(source, made, select=Select(rename=(("^a$", "c"),))).ok
    assert list(source.weights) == ["a", "b"]
    long = RNG.standard_normal((600, 1024)).astype(np.float32)
    damaged = long.copy()
    damaged[200] += 1
    assert only(long, damaged, level="sample").ok
    assert only(long, damaged).status == "changed"
    damaged[-1, -1] += 1
    assert only(long, damaged, level="sample").status == "changed"


class Exported(torch.nn.Module):
    """Weights that stay apart, a counter of training, and constants: shapes, limits, a table."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)

    def forward(self, x):
        x = self.norm(torch.relu(self.first(x)))
        x = x.reshape(x.shape[0], 4, 4).transpose(1, 2).reshape(x.shape[0], 16) * torch.arange(16) / 3
        return self.last(x).clamp(-3, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_network_that_torch_exported(tmp_path, capsys):
    """Constants of the computation are no tensors that a checkpoint without config.json lacks."""
    model = Exported().eval()
    model.load_state_dict(
        {name: torch.rand(value.shape) + 1 if value.ndim else value for name, value in model.state_dict().items()}
    )
    (tmp_path / "checkpoint").mkdir()
    cc.save_file(model.state_dict(), tmp_path / "checkpoint" / "model.safetensors")
    network = tmp_path / "m.onnx"
    torch.onnx.export(
        model, (torch.randn(2, 8),), network, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "rows"}}
    )
    assert cc.open(network).constants
    assert run(["verify", str(tmp_path / "checkpoint"), str(network)]) == 0
    assert "✓ 8 tensors: 8 equal" in capsys.readouterr().out
    state = model.state_dict()
    cc.save_file({**state, "last.bias": state["last.bias"] + 1}, tmp_path / "checkpoint" / "model.safetensors")
    assert run(["verify", str(tmp_path / "checkpoint"), str(network)]) == 1
    del state["last.bias"]
    cc.save_file(state, tmp_path / "checkpoint" / "model.safetensors")
    assert run(["verify", str(tmp_path / "checkpoint"), str(network)]) == 1
    assert "extra" in capsys.readouterr().out


def test_certificate_and_exit_codes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cc.save_file({"a.weight": VALUES, "b.weight": VALUES.astype(np.float16)}, "m.safetensors")
    assert run(["quantize", "m.safetensors", "q.gguf", "q4_k", "-q"]) == 0
    assert run(["verify", "m.safetensors", "q.gguf", "--certificate", "c.json"]) == 0
    shown = capsys.readouterr().out
    assert "✓ 2 tensors: 0 equal, 2 within" in shown
    first = (tmp_path / "c.json").read_bytes()
    found = json.loads(first)
    assert found["faithful"] is True
    assert found["made"] == [{"name": "q.gguf", "bytes": (tmp_path / "q.gguf").stat().st_size, "sha256": sha("q.gguf")}]
    assert found["source"][0]["sha256"] == sha("m.safetensors")
    assert [row["status"] for row in found["tensors"]] == ["within", "within"]
    assert run(["verify", "m.safetensors", "q.gguf", "--certificate", "c.json"]) == 5
    assert run(["verify", "m.safetensors", "q.gguf", "--certificate", "c.json", "--force"]) == 0
    assert (tmp_path / "c.json").read_bytes() == first
    cc.save_file({"a.weight": VALUES[::-1], "b.weight": VALUES}, "n.safetensors")
    assert run(["verify", "n.safetensors", "q.gguf", "--certificate", "c.json", "-f"]) == 1
    assert json.loads((tmp_path / "c.json").read_text())["faithful"] is False
    assert run(["verify", "n.safetensors", "q.gguf", "--include", "b"]) == 1
    assert run(["verify", "n.safetensors", "missing.gguf"]) == 7


def sha(name):
    with open(name, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
