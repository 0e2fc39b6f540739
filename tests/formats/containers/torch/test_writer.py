"""Writing PyTorch files: torch's restricted unpickler reads every one, as the values and dtypes that went in."""

import collections
import json
import pickletools
import zipfile

import candle_convert as cc
import pytest
import torch
from candle_convert.formats.pytorch import FORMAT
from candle_convert.runtime.contract.format import ReadOptions
from candle_convert.runtime.tensor.file import Source
from candle_convert.tests.builders.torch_files import (
    METADATA,
    assert_same,
    bits,
    checkpoint,
    findings,
    ours,
    saved,
    state,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_reads_what_is_written(mmap, tmp_path):
    values = ours()
    torch.save(values, tmp_path / "in.pth")
    cc.convert(tmp_path / "in.pth", tmp_path / "out.pth")
    loaded = torch.load(tmp_path / "out.pth", weights_only=True, mmap=mmap)
    assert type(loaded) is collections.OrderedDict
    assert list(loaded) == list(values)
    for name, value in values.items():
        assert (loaded[name].dtype, loaded[name].shape, loaded[name].stride()) == (
            value.dtype,
            value.shape,
            value.contiguous().stride(),
        ), name
        assert bits(loaded[name]) == bits(value)
    assert_same(values, cc.open(tmp_path / "out.pth"))
    assert not findings(tmp_path / "out.pth")


def test_the_same_bytes_every_time_with_aligned_storages(tmp_path):
    torch.save(state(), tmp_path / "in.pth")
    for name in ("a.pth", "b.pth"):
        cc.convert(tmp_path / "in.pth", tmp_path / name, threads=2)
    assert (tmp_path / "a.pth").read_bytes() == (tmp_path / "b.pth").read_bytes()
    for tensor in cc.open(tmp_path / "a.pth").weights.values():
        assert not tensor.nbytes or tensor.storage.offset % 64 == 0


def test_torch_writes_the_same_calls(tmp_path):
    for name, value in ours().items():
        torch.save({name: value}, tmp_path / "in.pth")
        cc.convert(tmp_path / "in.pth", tmp_path / "out.pth", force=True)
        names = []
        for path, root in (("in.pth", "in"), ("out.pth", "archive")):
            data = zipfile.ZipFile(tmp_path / path).read(f"{root}/data.pkl")
            names.append({argument for opcode, argument, _ in pickletools.genops(data) if opcode.name == "GLOBAL"})
        assert names[0] | {"collections OrderedDict"} == names[1]


def test_metadata_and_attachments_come_back(tmp_path):
    torch.save(checkpoint(), tmp_path / "in.pth")
    cc.convert(tmp_path / "in.pth", tmp_path / "out.pth", metadata={"licence": "mit"})
    assert cc.open(tmp_path / "out.pth").metadata == METADATA | {"licence": "mit"}
    assert set(torch.load(tmp_path / "out.pth", weights_only=True)) == {"weight", "bias"}
    with zipfile.ZipFile(tmp_path / "out.pth") as file:
        assert file.testzip() is None
        assert "archive/metadata.json" in file.namelist()


def test_no_weights_is_an_empty_dictionary(tmp_path):
    cc.save_file({}, tmp_path / "out.pth")
    assert torch.load(tmp_path / "out.pth", weights_only=True) == {}
    assert not cc.open(tmp_path / "out.pth").weights


def test_shards_with_an_index(tmp_path):
    values = {f"w{number}": torch.full((100,), float(number)) for number in range(5)}
    torch.save(values, tmp_path / "in.pth")
    cc.convert(tmp_path / "in.pth", tmp_path / "out", to="pytorch", shard_nbytes=1000)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names[-1] == "pytorch_model.bin.index.json"
    index = json.loads((tmp_path / "out" / names[-1]).read_text())
    assert index["metadata"]["total_size"] == 2000
    for name, shard in index["weight_map"].items():
        assert bits(torch.load(tmp_path / "out" / shard, weights_only=True)[name]) == bits(values[name])
    graph = cc.open(tmp_path / "out")
    assert {name: bytes(tensor.raw()) for name, tensor in graph.weights.items()} == {
        name: bits(value) for name, value in values.items()
    }


def test_check_compares_checksums(tmp_path):
    data = bytearray(saved({"a": torch.ones(1000)}))
    path = tmp_path / "a.pth"
    path.write_bytes(data)
    assert not list(FORMAT.check(Source(path), ReadOptions()))
    data[2000] ^= 1
    path.write_bytes(data)
    assert [finding.code for finding in FORMAT.check(Source(path), ReadOptions())] == ["E-ZIP-CRC"]
