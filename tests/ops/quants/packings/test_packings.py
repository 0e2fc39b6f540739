"""Packings: bytes of compressed-tensors' own library, and codes by the definitions of GPTQ, AWQ and bitsandbytes, which
readers tested with these libraries' files decode."""

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.ops.quants.packings import packings
from candle_convert.ops.quants.schemes import schemes
from candle_convert.runtime.contract.quantization_scheme import Checkpoint
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme, preset_name_to_scheme
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam

LIBRARY = ["W4A16", "W4A16_ASYM", "W8A16", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16"]
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
ROUNDED_TWICE = {"W4A16_ASYM": 2**-7, "NVFP4A16": 2**-3}
"""Where the library rounds to 16 bits before the scale is divided, or is rounded to 8."""
LAYER = "model.layers.0.mlp.up_proj"


def drawn(outputs, inputs, seed=0):
    """A matrix with rows of zeros, of one sign, of large and of small numbers."""
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))
    weight[1], weight[2], weight[3], weight[4] = 0, weight[2].abs() + 0.5, weight[3] * 1000, weight[4] * 1e-3
    return weight


def stored(weight):
    """A tensor of torch, as a file has it."""
    kind = {dtype: name for name, dtype in TORCH.items()}[weight.dtype]
    bits = weight.contiguous().view(torch.uint8).numpy()
    return StoredTensor(DTYPES[kind], tuple(weight.shape), StoredTensor.of(bits).storage)


def as_torch(tensor):
    """The stored tensor with torch's dtype."""
    kind = getattr(torch, tensor.dtype.torch)
    whole = bytearray(tensor.storage.read(0, tensor.storage.nbytes))
    return torch.frombuffer(whole, dtype=kind).reshape(tensor.shape)


def by_library(name, weight, group):
    """The tensors that compressed-tensors makes of a weight, by the smallest and the largest element of each group."""
    scheme = preset_name_to_scheme(name, ["Linear"])
    settings = scheme.weights
    if settings.strategy == "group":
        settings.group_size = group
    outputs, inputs = weight.shape
    if settings.strategy == "block":
        high, wide = settings.block_structure
        whole = torch.nn.functional.pad(weight, (0, -inputs % wide, 0, -outputs % high))
        apart = whole.reshape(-(-outputs // high), high, -(-inputs // wide), wide).transpose(1, 2).flatten(2)
    else:
        apart = weight.reshape(outputs, -1, settings.group_size or inputs)
    whole = None
    if settings.strategy == "tensor_group":
        whole = generate_gparam(weight.min(), weight.max())
    scale, zero = calculate_qparams(apart.amin(-1), apart.amax(-1), settings, whole)
    state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero}
    state |= {} if whole is None else {"weight_global_scale": whole}
    forms = {"W8A8": "int-quantized", "FP8_DYNAMIC": "float-quantized", "FP8_BLOCK": "float-quantized"}
    form = forms.get(name, "nvfp4-pack-quantized" if name == "NVFP4A16" else "pack-quantized")
    compressor = BaseCompressor.get_value_from_registry(form)
    return compressor.compress(state, QuantizationScheme(targets=["Linear"], weights=settings))


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("name", LIBRARY)
def test_bytes_of_the_library(name, group):
    weight = drawn(72, 256)
    packing = packings()[name.lower()]
    made = packing.pack(stored(weight), group if packing.group else 1)
    found = {part: as_torch(each) for part, each in made.items()}
    want = by_library(name, weight, group)
    assert found.keys() == want.keys()
    for part, tensor in want.items():
        assert torch.equal(found[part].view(tensor.dtype), tensor.reshape(found[part].shape)), part


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("name", LIBRARY)
def test_scales_have_the_dtype_of_the_weight(name, kind):
    """The library rounds quotients to 16 bits as well, which we do not: codes may differ by one."""
    weight = drawn(72, 256).to(TORCH[kind])
    packing = packings()[name.lower()]
    found = {part: as_torch(each) for part, each in packing.pack(stored(weight), 128).items()}
    want = by_library(name, weight, 128)
    scale = want["weight_scale"].reshape(found["weight_scale"].shape)
    torch.testing.assert_close(found["weight_scale"].float(), scale.float(), rtol=ROUNDED_TWICE.get(name, 0), atol=0)
    for part, tensor in want.items():
        assert (found[part].dtype, found[part].numel()) == (tensor.dtype, tensor.numel())


def read(packing, weight, group, name=f"{LAYER}.weight"):
    """The weight that our reader of the scheme gives."""
    tensors = {f"{LAYER}.{part}": each for part, each in packing.pack(stored(weight), group).items()}
    config = packing.configure(["lm_head"], group)
    return schemes()[config["quant_method"]].unpack(Checkpoint(config, tensors)).weights[name].numpy()


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_by_its_definition(bits, group):
    weight = drawn(96, 256)
    apart = weight.reshape(96, -1, group)
    scale = (2 * apart.abs().amax(-1, keepdim=True) / (2**bits - 1)).half().float()
    middle = 2 ** (bits - 1)
    codes = torch.clamp((apart / scale.clamp(min=2**-24)).round(), -middle, middle - 1)
    want = (codes * scale).reshape(96, 256)
    found = read(packings()[f"gptq-int{bits}"], weight, group)
    np.testing.assert_array_equal(found, want.numpy())


@pytest.mark.parametrize("group", [32, 128])
def test_awq_by_its_definition(group):
    weight = drawn(96, 256)
    apart = weight.reshape(96, -1, group)
    least, most = apart.amin(-1, keepdim=True).clamp(max=0), apart.amax(-1, keepdim=True).clamp(min=0)
    scale = ((most - least) / 15).half().float().clamp(min=2**-24)
    zero = torch.clamp(-least / scale, 0, 15).round()
    want = ((torch.clamp(apart / scale + zero, 0, 15).round() - zero) * scale).reshape(96, 256)
    np.testing.assert_array_equal(read(packings()["awq"], weight, group), want.numpy())


def test_nf4_by_its_definition():
    """The nearest of the values of QLoRA's appendix E, times the largest magnitude of 64 elements."""
    normal = torch.distributions.Normal(0.0, 1.0)
    ends = 0.9677083
    upper = normal.icdf(torch.linspace(ends, 0.5, 9)[:-1].double())
    lower = -normal.icdf(torch.linspace(ends, 0.5, 8)[:-1].double())
    table = torch.cat([upper, torch.zeros(1), lower]).sort().values.float()
    table = table / table.abs().max()
    weight = drawn(96, 256)
    apart = weight.reshape(-1, 64)
    largest = apart.abs().amax(-1, keepdim=True)
    nearest = ((apart / largest.clamp(min=1e-30))[..., None] - table).abs().argmin(-1)
    want = (table[nearest] * largest).reshape(96, 256)
    np.testing.assert_allclose(read(packings()["bnb-4bit"], weight, 1), want.numpy(), rtol=1e-5)


def test_rows_of_8_bits_by_their_definition():
    weight = drawn(96, 256)
    largest = weight.abs().amax(1, keepdim=True)
    want = torch.round(weight * (127 / largest).nan_to_num(posinf=0)) * largest / 127
    np.testing.assert_allclose(read(packings()["bnb-8bit"], weight, 1), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize(("name", "held"), [("gptq-int4", False), ("awq", False), ("w4a16", True), ("bnb-4bit", True)])
def test_scales_that_f16_cannot_hold(name, held):
    weight = drawn(64, 128)
    weight[5, 5] = 1e6
    if held:
        assert np.isfinite(read(packings()[name], weight, 128)).all()
    else:
        with pytest.raises(cc.FormatError, match=r"needs a scale of .*, which f16 cannot hold"):
            read(packings()[name], weight, 128)


@pytest.mark.parametrize("name", packings())
def test_rows_are_the_same_however_they_are_read(name):
    """A part is written in pieces by several threads, or by several machines."""
    packing = packings()[name]
    for each in packing.pack(stored(drawn(256, 1024).to(torch.bfloat16)), packing.group or 1).values():
        whole, pieces = bytes(each.storage.read(0, each.nbytes)), b""
        step = max(1, len(whole) // 7) // each.dtype.block_nbytes * each.dtype.block_nbytes or len(whole)
        for start in range(0, len(whole), step):
            pieces += bytes(each.storage.read(start, min(start + step, len(whole))))
        assert pieces == whole
