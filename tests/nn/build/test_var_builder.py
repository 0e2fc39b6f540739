"""VarBuilder and candle's constructors: files of several formats, prefixes, dtypes, VarMap; names that are missing."""

import candle_convert as cc
import numpy as np
import pytest
import torch

SIZES = {"a.0.linear": torch.nn.Linear(4, 6), "a.0.norm": torch.nn.LayerNorm(6), "conv": torch.nn.Conv2d(2, 3, 3)}


@pytest.fixture(params=["safetensors", "pth", "npz", "gguf"])
def file(request, tmp_path):
    state = {f"{path}.{name}": each.detach() for path, m in SIZES.items() for name, each in m.state_dict().items()}
    path = tmp_path / f"m.{request.param}"
    if request.param == "pth":
        torch.save(state, path)
    else:
        cc.save({name: each.numpy() for name, each in state.items()}, path)
    return path


def test_files(file):
    vb = cc.nn.VarBuilder.from_file(file, dtype=cc.float32)
    block = vb.pp("a").pp(0)
    assert block.prefix == "a.0"
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    linear, norm = cc.nn.linear(4, 6, block.pp("linear")), cc.nn.layer_norm(6, 1e-5, block.pp("norm"))
    expected = SIZES["a.0.norm"](SIZES["a.0.linear"](torch.tensor(x))).detach().numpy()
    np.testing.assert_allclose(norm(linear(cc.tensor(x))).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    conv = cc.nn.conv2d(2, 3, 3, vb / "conv", padding=1)
    np.testing.assert_array_equal(conv.weight.detach().numpy(), SIZES["conv"].weight.detach().numpy())
    assert conv.padding == (1, 1)
    assert vb.contains_tensor("conv.bias")
    assert not vb.contains_tensor("bias")
    half = cc.nn.linear(4, 6, vb.to_dtype(cc.bfloat16).pp("a.0.linear"), bias=False)
    assert half.weight.dtype == cc.bfloat16
    assert half.bias is None


def test_block_types_are_dequantized(tmp_path):
    weight = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    cc.save({"x.weight": weight}, tmp_path / "m.safetensors")
    cc.quantize(tmp_path / "m.safetensors", tmp_path / "q.gguf", "Q8_0")
    layer = cc.nn.linear(32, 8, cc.nn.VarBuilder.from_file(tmp_path / "q.gguf").pp("x"), bias=False)
    np.testing.assert_allclose(layer.weight.detach().numpy(), weight, atol=0.02)


def test_files_that_do_not_fit(tmp_path):
    cc.save({"a.weight": np.zeros((2, 3), np.float32)}, tmp_path / "m.safetensors")
    vb = cc.nn.VarBuilder.from_file(tmp_path / "m.safetensors")
    with pytest.raises(cc.FormatError, match=r"m\.safetensors: there is no tensor 'a\.bias'"):
        cc.nn.linear(3, 2, vb.pp("a"))
    with pytest.raises(cc.FormatError, match=r"another shape \(expected \[5, 3\], found \[2, 3\]\)"):
        cc.nn.linear(3, 5, vb.pp("a"), bias=False)
    with pytest.raises(cc.UsageError, match="there is no tensor 'b'"):
        cc.nn.VarBuilder.from_tensors({"a": np.zeros(2)}).get(2, "b")
    with pytest.raises(cc.Error):
        cc.nn.VarBuilder.from_file(tmp_path / "none.safetensors")


def test_names_can_be_mapped_and_zeros_be_asked_for():
    vb = cc.nn.VarBuilder.from_tensors({"x/w": torch.ones(2)}).rename(lambda name: name.replace(".", "/"))
    assert vb.pp("x").get(2, "w").tolist() == [1, 1]
    assert cc.nn.VarBuilder.zeros().get((1, 2), "any").tolist() == [[0, 0]]
    assert not cc.nn.embedding(3, 2, cc.nn.VarBuilder.zeros().pp("e")).weight.detach().any()


def test_variables(tmp_path):
    variables = cc.nn.VarMap()
    vb = cc.nn.VarBuilder.from_varmap(variables, dtype=cc.float32)
    cc.manual_seed(1)
    one, same = cc.nn.linear(4, 3, vb.pp("one")), cc.nn.linear(4, 3, vb.pp("one"))
    assert list(variables) == ["one.weight", "one.bias"]
    assert one.weight is same.weight is variables["one.weight"]
    cc.manual_seed(1)
    np.testing.assert_array_equal(one.weight.detach().numpy(), cc.nn.Linear(4, 3).weight.detach().numpy())
    one(cc.rand(2, 4)).sum().backward()
    assert all(each.grad is not None for each in variables.all_vars())
    before = one.weight.tolist()
    variables.save(tmp_path / "v.safetensors")
    with cc.no_grad():
        one.weight.fill_(0)
    variables.load(tmp_path / "v.safetensors")
    assert one.weight.tolist() == before
