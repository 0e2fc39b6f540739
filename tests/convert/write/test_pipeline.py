"""The pipeline: what a plan says, what is carried along, and that a wrong output is never published."""

import itertools
import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.write import pipeline
from candle_convert.convert.write import plan as planning
from candle_convert.convert.write.conversion_options import Options
from candle_convert.convert.write.read_back import VerifyError
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.passes.weights.select import Select
from candle_convert.runtime.tensor.dtype import F32
from candle_convert.runtime.tensor.storage import Derived
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from safetensors import safe_open

WEIGHTS = {
    "model.a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "model.b.weight": np.arange(6, dtype=np.float16),
    "ids": np.arange(5),
}


@pytest.fixture
def model(tmp_path):
    """A model directory in the hub's layout."""
    folder = tmp_path / "model"
    folder.mkdir()
    cc.save_file(WEIGHTS, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text('{"model_type": "none"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "training_args.bin").write_bytes(b"not weights")
    return folder


def test_a_directory_keeps_its_files(model, tmp_path):
    report = cc.convert(model, tmp_path / "out", to="safetensors")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (tmp_path / "out" / "config.json").read_bytes() == (model / "config.json").read_bytes()
    assert report.verified == 3
    assert cc.hash(model) == cc.hash(tmp_path / "out")


def test_a_file_takes_the_directory_into_its_metadata(model, tmp_path):
    cc.convert(model, tmp_path / "one.safetensors")
    graph = cc.open(tmp_path / "one.safetensors")
    assert sorted(graph.attachments) == ["config.json", "tokenizer.json"]
    assert graph.metadata == {"format": "pt"}
    cc.convert(tmp_path / "one.safetensors", tmp_path / "again", to="safetensors")
    assert (tmp_path / "again" / "config.json").read_bytes() == (model / "config.json").read_bytes()


def test_attachments_can_be_left_or_taken_from_elsewhere(model, tmp_path):
    cc.convert(model, tmp_path / "bare.safetensors", attachments=False)
    assert not cc.open(tmp_path / "bare.safetensors").attachments
    cc.convert(tmp_path / "bare.safetensors", tmp_path / "full.safetensors", tokenizer=str(model))
    assert "tokenizer.json" in cc.open(tmp_path / "full.safetensors").attachments


def test_shards_have_an_index_that_covers_them(model, tmp_path):
    cc.convert(model, tmp_path / "out", to="safetensors", shard_nbytes=50)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in WEIGHTS.values())
    for name, array in WEIGHTS.items():
        with safe_open(tmp_path / "out" / index["weight_map"][name], "np") as shard:
            assert np.array_equal(shard.get_tensor(name), array)
    assert cc.hash(model) == cc.hash(tmp_path / "out") == cc.hash(tmp_path / "out" / "model.safetensors.index.json")


def test_metadata_is_set_and_removed(model, tmp_path):
    cc.convert(model / "model.safetensors", tmp_path / "out.safetensors", metadata={"licence": "mit", "format": None})
    assert cc.open(tmp_path / "out.safetensors").metadata == {"licence": "mit"}


def test_several_inputs_become_one(model, tmp_path):
    cc.save_file({"more": np.ones(3)}, tmp_path / "more.safetensors")
    cc.convert([model / "model.safetensors", tmp_path / "more.safetensors"], tmp_path / "out.safetensors")
    assert set(cc.open(tmp_path / "out.safetensors")) == {*WEIGHTS, "more"}
    with pytest.raises(cc.FormatError, match="E-SHARD-TWICE"):
        cc.convert([model, model], tmp_path / "twice.safetensors")


def test_selection_and_names(model, tmp_path):
    cc.convert(model, tmp_path / "out.safetensors", select=Select(include=("weight",), rename=((r"^model\.", ""),)))
    assert set(cc.open(tmp_path / "out.safetensors")) == {"a.weight", "b.weight"}


def test_a_plan_is_exact(model, tmp_path):
    made = cc.plan(model, tmp_path / "out", to="safetensors", dtype="bf16")
    assert not (tmp_path / "out").exists()
    report = pipeline.execute(made)
    written = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert made.nbytes == report.nbytes == sum(written)
    assert made.disk_free > 0
    assert made.peak_memory > 0


def test_overflow_and_nan_are_reported_by_tensor(tmp_path):
    cc.save_file(
        {"big": np.array([1e6, 1.0], np.float32), "nan": np.array([np.nan], np.float32)}, tmp_path / "in.safetensors"
    )
    with pytest.raises(cc.FormatError, match="E-NAN"):
        cc.convert(tmp_path / "in.safetensors", tmp_path / "out.safetensors", dtype="f16")
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]
    report = cc.convert(
        tmp_path / "in.safetensors", tmp_path / "out.safetensors", dtype="f16", nan="warn", allow_overflow=True
    )
    assert {(note.code, note.tensor) for note in report.notes} == {("W-OVERFLOW", "big"), ("W-NAN", "nan")}


@pytest.mark.parametrize("level", ["sample", "full"])
def test_a_source_that_changes_while_it_is_read_is_caught(tmp_path, level):
    target = tmp_path / "out.safetensors"
    target.write_bytes(b"old")
    reading = itertools.count()
    storage = Derived(4096, 4, lambda start, stop: bytes([next(reading) == 0]) * (stop - start))
    graph = Graph(weights={"x": StoredTensor(F32, (1024,), storage)})
    made = planning.plan_graph(graph, target, Options(force=True, verify=level))
    with pytest.raises(VerifyError, match="differs"):
        pipeline.execute(made)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize(
    ("output", "options", "error", "code"),
    [
        ("out.xyz", {}, cc.UsageError, "E-OUT-FORMAT"),
        ("out", {}, cc.UsageError, "E-OUT-FORMAT"),
        ("out.safetensors", {"to": "nothing"}, cc.UsageError, "E-FORMAT-NAME"),
        ("out.safetensors", {"colour": "red"}, cc.UsageError, "E-OPTION"),
        ("model/model.safetensors", {}, cc.UnsafeFileError, "E-OUT-EXISTS"),
    ],
)
def test_requests_that_make_no_sense(model, tmp_path, output, options, error, code):
    with pytest.raises(error) as caught:
        cc.convert(model, tmp_path / output, **options)
    assert caught.value.code == code
