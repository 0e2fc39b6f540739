"""save and load of tensors: files are those of safetensors."""

import gzip
import io
import tempfile

import candle_convert as cc
import numpy as np
import pytest
import safetensors.torch
import torch
from candle_convert.convert.api.tensor_files import ROOT


def test_files(tmp_path):
    path = tmp_path / "m.safetensors"
    tensors = {"w": cc.randn(3, 4, requires_grad=True), "b": cc.arange(5), "h": cc.ones(2, dtype=cc.bf16)}
    cc.save(tensors, path, {"step": "3"})
    theirs = safetensors.torch.load_file(path)
    dtypes = {"w": torch.float32, "b": torch.int64, "h": torch.bfloat16}
    assert {name: each.dtype for name, each in theirs.items()} == dtypes
    np.testing.assert_array_equal(theirs["w"].numpy(), tensors["w"].detach().numpy())
    found = cc.load(path)
    assert {name: each.dtype for name, each in found.items()} == {name: each.dtype for name, each in tensors.items()}
    assert all(cc.equal(found[name], tensors[name]) for name in tensors)


def test_functions_give_the_same_for_arrays_and_tensors():
    x = cc.tensor([-1.0, 0.0, 2.0])
    for name in ("relu", "sigmoid", "gelu", "silu", "erf", "softmax"):
        found = getattr(cc, name)(x)
        assert isinstance(found, cc.Tensor)
        np.testing.assert_allclose(found.numpy(), getattr(cc, name)(x.numpy()), rtol=1e-6)


@pytest.mark.parametrize("name", ["a.pt", "a.bin", "a.ckpt"])
def test_a_file_has_the_name_that_it_is_given(tmp_path, name):
    cc.save({"x": cc.ones(2)}, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert cc.load(tmp_path / name)["x"].tolist() == [1, 1]
    assert torch.load(tmp_path / name)["x"].tolist() == [1, 1]


def test_checkpoints_of_several_state_dicts(tmp_path):
    model = cc.nn.Linear(2, 2)
    optimizer = cc.optim.Adam(model.parameters())
    model(cc.ones(1, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / "run.pt"
    cc.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": None}, path)
    found = cc.load(path, map_location=cc.device("cpu"), weights_only=True)
    assert (found["epoch"], found["best"]) == (3, None)
    assert found["model"]["weight"].tolist() == model.weight.tolist()
    optimizer.load_state_dict(found["optimizer"])
    with pytest.raises(cc.UsageError, match=r"the value is Linear.*state_dict\(\)"):
        cc.save(model, path)


def test_the_tensor_that_computes_and_that_of_files():
    computes, stored = cc.ones(1), cc.StoredTensor.of(np.ones(3, np.float32))
    assert isinstance(computes, cc.Tensor)
    assert not isinstance(stored, cc.Tensor)
    assert issubclass(cc.nn.Parameter, cc.Tensor)
    assert not isinstance(np.ones(1), cc.Tensor)
    assert cc.Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert cc.Tensor(2, 3).shape == (2, 3)


def test_open_files_and_tensors_alone(tmp_path):
    model = cc.nn.Linear(2, 3)
    for item in (model.state_dict(), {"model": model.state_dict(), "epoch": 3}):
        memory = io.BytesIO()
        cc.save(item, memory)
        memory.seek(0)
        found = cc.load(memory)
        assert found.get("epoch") == item.get("epoch")
        assert found.get("model", found)["weight"].tolist() == model.weight.tolist()
    cc.save([cc.arange(3), cc.ones(2)], tmp_path / "list.pt")
    assert [each.tolist() for each in cc.load(tmp_path / "list.pt")] == [[0, 1, 2], [1, 1]]
    cc.save(cc.arange(3), tmp_path / "tensor.pt")
    with (tmp_path / "tensor.pt").open("rb") as file:
        assert cc.load(file).tolist() == [0, 1, 2]
    theirs = io.BytesIO()
    torch.save({"x": torch.arange(3)}, theirs)
    theirs.seek(0)
    assert cc.load(theirs)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("metadata", [None, {"step": "3"}])
@pytest.mark.parametrize("opened", [open, gzip.open])
@pytest.mark.parametrize("name", ["model.safetensors.tmp", "m.part", "m.safetensors.gz", "m.onnx", "m.npz", "m"])
def test_open_files_of_other_names(tmp_path, name, opened, metadata):
    with opened(tmp_path / name, "wb") as file:
        cc.save({"x": cc.arange(3)}, file, metadata)
    with opened(tmp_path / name, "rb") as file:
        content = file.read()
    theirs = torch.load(io.BytesIO(content)) if metadata is None else safetensors.torch.load(content)
    assert theirs["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("suffix", [".safetensors", ".SAFETENSORS"])
def test_an_open_file_of_safetensors(suffix):
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        cc.save({"x": cc.arange(3)}, file)
        file.seek(0)
        assert safetensors.torch.load(file.read())["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", [3.0, [], "abc", {"a": 1}, None, [1, 2]], ids=str)
def test_a_dictionary_with_the_key_of_what_is_saved_alone(tmp_path, value):
    cc.save({ROOT: value}, tmp_path / "a.safetensors")
    assert cc.load(tmp_path / "a.safetensors") == {ROOT: value}
