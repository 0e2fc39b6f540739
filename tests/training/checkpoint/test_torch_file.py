"""Checkpoints of torch: `load` gives what torch.load(weights_only=True) gives, and torch reads what `save` writes."""

import argparse
import collections
import io
import warnings

import candle_convert as cc
import numpy as np
import pytest
import torch
from safetensors.numpy import load, load_file

NAMES = {"f32": torch.float32, "i64": torch.int64, "bf16": torch.bfloat16}


def trained():
    """A checkpoint as scripts write them."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    shared = torch.ones(2)
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
        "epoch": 3, "loss": 0.5, "name": "rün", "history": [1, 2.5, None, True], "pair": (1, (2, "x")), "large": 2**70,
        "negative": [-5, -(2**40)], "nested": {"a": {"b": [torch.arange(3), {"c": torch.tensor(1.5)}]}},
        "ordered": collections.OrderedDict(x=1), "counts": collections.Counter("aab"), "set": {1, 2},
        "bytes": b"ab\xff", "half": torch.ones(2, dtype=torch.bfloat16), "parameter": torch.nn.Parameter(torch.ones(2)),
        "recorded": torch.ones(2, requires_grad=True), "size": torch.Size([1, 2]), 3: "a number as a key",
        "one": shared, "other": shared, "complex": 1 + 2j, "worst": float("inf"), "empty": [[], {}, ()],
        "long": "x" * 70000, "many bytes": b"y" * 10000, "column": torch.arange(6.0).reshape(2, 3).t(),
    }  # fmt: skip


def same(theirs, ours):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, cc.Tensor)
        assert theirs.dtype is NAMES[ours.dtype.name]
        assert theirs.requires_grad == ours.requires_grad
        assert isinstance(theirs, torch.nn.Parameter) == isinstance(ours, cc.nn.Parameter)
        np.testing.assert_array_equal(ours.detach().float().numpy(), theirs.detach().float().numpy())
    elif isinstance(theirs, dict):
        assert type(theirs) is type(ours)
        assert list(theirs) == list(ours)
        for key, each in theirs.items():
            same(each, ours[key])
    elif isinstance(theirs, list | tuple):
        assert type(ours) is (tuple if isinstance(theirs, tuple) else list)
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            same(one, other)
    else:
        assert type(theirs) is type(ours)
        assert theirs == ours


@pytest.mark.parametrize("archive", [True, False], ids=["zip", "stream"])
def test_load_gives_every_entry(tmp_path, archive):
    path = tmp_path / "run.ckpt"
    torch.save(trained(), path, _use_new_zipfile_serialization=archive)
    ours = cc.load(path)
    same(torch.load(path, weights_only=True), ours)
    assert ours["one"] is ours["other"]
    same(torch.load(path, weights_only=True), cc.load(io.BytesIO(path.read_bytes())))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".bin"])
def test_torch_reads_what_save_writes(tmp_path, suffix):
    torch.save(trained(), tmp_path / "theirs.pt")
    checkpoint = cc.load(tmp_path / "theirs.pt")
    cc.save(checkpoint, tmp_path / f"ours{suffix}")
    theirs = torch.load(tmp_path / f"ours{suffix}", weights_only=True)
    same(theirs, checkpoint)
    same(theirs, cc.load(tmp_path / f"ours{suffix}"))
    assert theirs["one"].data_ptr() == theirs["other"].data_ptr()


@pytest.mark.parametrize("value", [trained(), {"a": torch.arange(3)}, torch.ones(2), [torch.ones(1), None]])
def test_torch_reads_what_save_writes_into_memory(value):
    file = io.BytesIO()
    cc.save(value, file)
    same(torch.load(io.BytesIO(file.getvalue()), weights_only=True), cc.load(io.BytesIO(file.getvalue())))


def test_an_open_file_gets_the_format_of_its_name(tmp_path):
    for name in ("a.safetensors", "a.pt"):
        with open(tmp_path / name, "wb") as file:
            cc.save({"a": np.ones(2, np.float32)}, file)
    assert load_file(tmp_path / "a.safetensors").keys() == torch.load(tmp_path / "a.pt").keys() == {"a"}
    file = io.BytesIO()
    cc.save({"a": np.ones(2, np.float32)}, file, metadata={"made": "here"})
    assert load(file.getvalue()).keys() == {"a"}


def test_a_run_goes_on_in_torch(tmp_path):
    model = cc.nn.Linear(3, 2)
    optimizer = cc.optim.AdamW(model.parameters(), lr=0.01)
    model(cc.ones((1, 3))).sum().backward()
    optimizer.step()
    cc.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, tmp_path / "a.pt")
    state = torch.load(tmp_path / "a.pt", weights_only=True)
    theirs = torch.nn.Linear(3, 2)
    theirs.load_state_dict(state["model"])
    other = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    other.load_state_dict({**state["optimizer"], "param_groups": other.state_dict()["param_groups"]})
    for each, module, m in ((optimizer, model, cc), (other, theirs, torch)):
        each.zero_grad()
        module(m.ones((1, 3))).sum().backward()
        each.step()
    np.testing.assert_allclose(model.weight.detach().numpy(), theirs.weight.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "value", [[1, np.ones(2)], np.ones(2), {"a": np.float32(0.5), "b": np.int64(3), "c": np.True_}]
)
def test_arrays_and_numbers_of_numpy(tmp_path, value):
    cc.save(value, tmp_path / "a.pt")
    found = torch.load(tmp_path / "a.pt", weights_only=True)
    if isinstance(value, dict):
        assert found == {"a": 0.5, "b": 3, "c": True}
    else:
        np.testing.assert_array_equal(found[1] if isinstance(value, list) else found, np.ones(2))


@pytest.mark.parametrize("bad", [print, {"f": object()}, torch.nn.Linear(2, 2)])
def test_what_cannot_be_saved(tmp_path, bad):
    with pytest.raises(cc.UsageError, match="which a PyTorch file cannot hold"):
        cc.save({"x": bad}, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())


def test_a_list_that_holds_itself(tmp_path):
    loop = []
    loop.append(loop)
    with pytest.raises(cc.UsageError, match="holds itself"):
        cc.save(loop, tmp_path / "a.pt")


def test_pickled_modules_are_named_and_their_tensors_loaded(tmp_path):
    torch.save({"model": torch.nn.Linear(2, 1), "epoch": 2}, tmp_path / "a.pt")
    with pytest.warns(UserWarning, match=r"torch\.nn\.modules\.linear\.Linear.*only the tensors"):
        assert list(cc.load(tmp_path / "a.pt")) == ["weight", "bias"]


def test_namespaces(tmp_path):
    torch.save({"args": argparse.Namespace(lr=0.1), "w": torch.ones(1)}, tmp_path / "a.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cc.load(tmp_path / "a.pt")["args"].lr == 0.1
