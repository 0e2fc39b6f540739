"""Schemes of quantized checkpoints against the libraries that made them, packings written anew, and checkpoints that
contradict themselves."""

import json

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.convert.open.prequantized import configuration, declared
from candle_convert.ops.quants.schemes import schemes
from candle_convert.runtime.contract.quantization_scheme import Checkpoint
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.paths import VECTORS
from safetensors import safe_open
from safetensors.torch import save_file

RECORDED = VECTORS / "schemes.safetensors"
with safe_open(RECORDED, "pt") as file:
    CONFIGS = {name: json.loads(text) for name, text in json.loads(file.metadata()["configs"]).items()}
    TENSORS = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (the file is no dictionary)
LAYER = "model.layers.0.mlp.up_proj"
ROUNDED = {"ct-nvfp4": 2**-8}
"""Cases whose library computes in bfloat16."""


def part(case, side):
    start = f"{case}/{side}/"
    return {name.removeprefix(start): tensor for name, tensor in TENSORS.items() if name.startswith(start)}


def directory(folder, config, tensors, extra=None):
    """A model directory as the hub has it."""
    folder.mkdir(exist_ok=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in (tensors | (extra or {})).items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps({"model_type": "unknown", "quantization_config": config}))
    return folder


@pytest.mark.parametrize("case", CONFIGS)
def test_as_the_library_that_made_it(case, tmp_path):
    plain = {"model.norm.weight": torch.ones(4)}
    graph = cc.open(directory(tmp_path / "m", CONFIGS[case], part(case, "in"), plain))
    wanted = part(case, "out")
    assert set(graph.weights) == {*wanted, *plain}
    for name, tensor in wanted.items():
        found = graph[name]
        assert found.shape == tuple(tensor.shape)
        assert (found.dtype.name == "mxfp4") == (case == "ct-mxfp4")
        values = found.dequantize().numpy()
        np.testing.assert_allclose(values, tensor.numpy(), rtol=ROUNDED.get(case, 0))
        for first, last in ((0, 1), (1, len(found) - 1), (len(found) - 1, len(found))):
            np.testing.assert_array_equal(found[first:last].dequantize().numpy(), values[first:last])
    assert declared(configuration(graph)) is None
    assert [note.code for note in graph.notes] == ["W-PREQUANTIZED"]


def bits_of(codes, bits):
    """Codes [n, k] as 32-bit words [n, k * bits / 32], lowest bits first, by Python's own numbers."""
    rows = []
    for row in codes.tolist():
        whole = sum(int(code) << index * bits for index, code in enumerate(row))
        rows.append([whole >> 32 * index & 0xFFFFFFFF for index in range(-(-len(row) * bits // 32))])
    return torch.tensor(rows, dtype=torch.int64).to(torch.int32)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("form", "offset"), [("gptq", 1), ("gptq_v2", 0)])
@pytest.mark.parametrize("group", [-1, 32])
def test_gptq_by_its_definition(bits, form, offset, group):
    generator = torch.Generator().manual_seed(bits)
    outputs, inputs = 64, 96 if bits != 8 else 64
    groups = 1 if group == -1 else -(-inputs // group)
    codes = torch.randint(0, 2**bits, (outputs, inputs), generator=generator)
    zeros = torch.randint(offset, 2**bits, (groups, outputs), generator=generator)
    scales = torch.rand(groups, outputs, generator=generator).half()
    tensors = {
        f"{LAYER}.qweight": bits_of(codes, bits).T,
        f"{LAYER}.qzeros": bits_of(zeros - offset, bits),
        f"{LAYER}.scales": scales,
    }
    of_inputs = torch.arange(inputs) // (inputs if group == -1 else group)
    wanted = (codes - zeros.T[:, of_inputs]) * scales.float().T[:, of_inputs]
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "checkpoint_format": form}
    found = unpacked(config, tensors).weights[f"{LAYER}.weight"]
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    np.testing.assert_array_equal(found[33:50].numpy(), wanted[33:50].numpy())


@pytest.mark.parametrize("nested", [False, True])
def test_runs_of_bitsandbytes_go_over_the_ends_of_rows(nested):
    generator = torch.Generator().manual_seed(3)
    table, codes = torch.randn(16, generator=generator), torch.randint(0, 16, (7 * 51,), generator=generator)
    pairs = torch.cat([codes, torch.zeros(1, dtype=torch.int64)]).reshape(-1, 2)
    scales = torch.rand(6, generator=generator)
    said = {"blocksize": 64, "quant_type": "nf4", "dtype": "bfloat16", "shape": [7, 51]}
    tensors = {
        f"{LAYER}.weight": (pairs[:, :1] * 16 + pairs[:, 1:]).to(torch.uint8),
        f"{LAYER}.weight.quant_map": table,
    }
    tensors[f"{LAYER}.weight.absmax"] = scales
    if nested:
        of_scales, coded = torch.randn(256, generator=generator), torch.randint(0, 256, (6,), generator=generator)
        of_runs = torch.rand(3, generator=generator)
        tensors |= {f"{LAYER}.weight.nested_absmax": of_runs, f"{LAYER}.weight.nested_quant_map": of_scales}
        tensors[f"{LAYER}.weight.absmax"] = coded.to(torch.uint8)
        scales = of_scales[coded] * of_runs.repeat_interleave(2) + torch.tensor(0.25)
        said |= {"nested_blocksize": 2, "nested_offset": 0.25, "nested_dtype": "float32"}
    tensors[f"{LAYER}.weight.quant_state.bitsandbytes__nf4"] = state(**said)
    wanted = (table[codes] * scales.repeat_interleave(64)[: 7 * 51]).reshape(7, 51).numpy()
    found = unpacked({"quant_method": "bitsandbytes"}, tensors).weights[f"{LAYER}.weight"]
    np.testing.assert_array_equal(found.numpy(), wanted)
    for row in range(7):
        np.testing.assert_array_equal(found[row].numpy(), wanted[row])


def unpacked(config, tensors):
    held = {name: StoredTensor.of(raw(tensor)) for name, tensor in tensors.items()}
    return schemes()[config["quant_method"]].unpack(Checkpoint(config, held))


def raw(tensor):
    import ml_dtypes

    special = {
        torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
        torch.bfloat16: ml_dtypes.bfloat16,
        torch.float8_e8m0fnu: ml_dtypes.float8_e8m0fnu,
    }
    plain = tensor.contiguous()
    if tensor.dtype in special:
        return (
            plain.view(torch.uint8 if tensor.element_size() == 1 else torch.int16).numpy().view(special[tensor.dtype])
        )
    return plain.numpy()


def test_blocks_at_the_edge_of_a_matrix_are_cut():
    weight = torch.randn(40, 72).to(torch.float8_e4m3fn)
    scales = torch.rand(3, 3)
    tensors = {
        f"{LAYER}.weight": weight,
        f"{LAYER}.weight_scale_inv": scales,
        f"{LAYER}.activation_scale": torch.ones(1),
    }
    found = unpacked({"quant_method": "fp8", "weight_block_size": [16, 32]}, tensors)
    wanted = weight.float() * scales.repeat_interleave(16, 0).repeat_interleave(32, 1)[:40, :72]
    np.testing.assert_array_equal(found.weights[f"{LAYER}.weight"].numpy(), wanted.numpy())
    assert found.unused == [f"{LAYER}.activation_scale"]


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 1, 1), (2, 40, 1), (2, 40)])
def test_scales_of_stacked_matrices(shape):
    weight, scales = torch.randn(2, 40, 24).to(torch.float8_e4m3fn), torch.rand(shape)
    found = unpacked({"quant_method": "fp8"}, {"experts.up": weight, "experts.up_scale_inv": scales}).weights[
        "experts.up"
    ]
    spread = scales.reshape(*shape, *[1] * (3 - len(shape))) if shape != (1,) else scales
    np.testing.assert_array_equal(found.numpy(), (weight.float() * spread).numpy())


COMPRESSED = {
    "quant_method": "compressed-tensors", "format": "float-quantized",
    "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
}  # fmt: skip


@pytest.mark.parametrize("name", ["experts.gate_up_proj", "experts.weight"])
@pytest.mark.parametrize("shape", [(1,), (2,), (2, 1, 1), (2, 40, 1), (2, 40)])
def test_compressed_stacked_experts_are_scaled(name, shape):
    """Experts of one parameter (``gate_up_proj`` with ``gate_up_proj_scale``) as those of modules."""
    weight, scales = torch.randn(2, 40, 24).to(torch.float8_e4m3fn), torch.rand(shape)
    found = unpacked(COMPRESSED, {name: weight, f"{name}_scale": scales})
    assert list(found.weights) == [name]
    spread = scales.reshape(*shape, *[1] * (3 - len(shape))) if shape != (1,) else scales
    np.testing.assert_array_equal(found.weights[name].numpy(), (weight.float() * spread).numpy())


def packed_matrix(codes, bits):
    """compressed-tensors' pack_to_int32 of a matrix of unsigned codes: no padding bits, lowest codes first."""
    rows, columns = codes.shape
    flags = (codes.numpy().astype(np.uint8)[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    words = -(-columns * bits // 32)
    padded = np.zeros((rows, words * 32), np.uint8)
    padded[:, : columns * bits] = flags.reshape(rows, -1)
    return torch.from_numpy(np.packbits(padded, axis=1, bitorder="little").view("<i4"))


@pytest.mark.parametrize("name", ["experts.gate_up_proj", "experts.weight"])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_compressed_packed_experts(name, bits, symmetric):
    """Experts of one tensor are packed matrix by matrix, as compressed-tensors 0.20 packs tensors of any rank."""
    experts, outputs, inputs, group = 3, 40, 48, 16
    codes = torch.randint(0, 1 << bits, (experts, outputs, inputs))
    zeros = torch.randint(0, 1 << bits, (experts, outputs, inputs // group))
    scales = torch.rand(experts, outputs, inputs // group)
    state = {f"{name}_packed": torch.stack([packed_matrix(each, bits) for each in codes]), f"{name}_scale": scales,
             f"{name}_shape": torch.tensor([experts, outputs, inputs])}  # fmt: skip
    if symmetric:
        zeros = torch.full_like(zeros, 1 << bits - 1)
    else:
        state[f"{name}_zero_point"] = torch.stack([packed_matrix(each.T, bits).T.contiguous() for each in zeros])
    weights = {"num_bits": bits, "group_size": group, "symmetric": symmetric}
    found = unpacked({**COMPRESSED, "format": "pack-quantized", "config_groups": {"g": {"weights": weights}}}, state)
    assert list(found.weights) == [name]
    wide = [each.repeat_interleave(group, dim=-1) for each in (zeros, scales)]
    np.testing.assert_array_equal(found.weights[name].numpy(), ((codes - wide[0]).float() * wide[1]).numpy())


def test_packing_is_that_of_the_library():
    library = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    codes = torch.randint(0, 8, (3, 40, 50))
    theirs = library.pack_to_int32((codes - 4).to(torch.int8), 3)
    np.testing.assert_array_equal(torch.stack([packed_matrix(each, 3) for each in codes]).numpy(), theirs.numpy())


@pytest.mark.parametrize("name", ["experts.gate_up_proj", "experts.weight"])
@pytest.mark.parametrize("whole", [None, (), (1,), (3,), (3, 1, 1)])
def test_compressed_four_bit_floats_of_stacked_experts(name, whole):
    """Each expert is packed as a matrix is; a global scale is of one expert or of all."""
    from transformers.integrations.mxfp4 import FP4_VALUES

    codes = torch.randint(0, 16, (3, 40, 96))
    scales = torch.rand(3, 40, 6).to(torch.float8_e4m3fn)
    state = {f"{name}_packed": (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8), f"{name}_scale": scales}
    divisor = torch.ones(3) if whole is None else 1 + torch.rand(whole)
    if whole is not None:
        state[f"{name}_global_scale"] = divisor
    groups = {"g": {"weights": {"num_bits": 4, "group_size": 16, "type": "float"}}}
    found = unpacked({**COMPRESSED, "format": "nvfp4-pack-quantized", "config_groups": groups}, state)
    assert list(found.weights) == [name]
    factors = (scales.float() / divisor.reshape(-1, 1, 1)).repeat_interleave(16, dim=-1)
    wanted = (torch.tensor(FP4_VALUES)[codes] * factors).numpy()
    np.testing.assert_array_equal(found.weights[name].numpy(), wanted)
    np.testing.assert_array_equal(found.weights[name][1:].numpy(), wanted[1:])


def test_compressed_mxfp4_of_stacked_experts_keeps_its_bits():
    """As transformers dequantizes the same blocks of gpt-oss."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    packed = torch.randint(0, 256, (3, 40, 2, 16), dtype=torch.uint8)
    exponents = torch.randint(100, 140, (3, 40, 2), dtype=torch.uint8)
    name = "experts.gate_up_proj"
    state = {f"{name}_packed": packed.reshape(3, 40, 32), f"{name}_scale": exponents}
    groups = {"g": {"weights": {"num_bits": 4, "group_size": 32, "type": "float"}}}
    found = unpacked({**COMPRESSED, "format": "mxfp4-pack-quantized", "config_groups": groups}, state).weights[name]
    assert found.dtype.name == "mxfp4"
    wanted = convert_moe_packed_tensors(packed, exponents, dtype=torch.float32).transpose(1, 2)
    np.testing.assert_array_equal(found.dequantize().numpy(), wanted.numpy())


@pytest.mark.parametrize("scale", [torch.ones(2), torch.ones(3, 2)])
def test_compressed_global_scales_that_do_not_count_the_experts(scale):
    state = {"w_packed": torch.zeros(3, 4, 16, dtype=torch.uint8), "w_scale": torch.ones(3, 4, 2),
             "w_global_scale": scale}  # fmt: skip
    groups = {"g": {"weights": {"num_bits": 4, "group_size": 16, "type": "float"}}}
    with pytest.raises(cc.FormatError, match="E-PACKED-SHAPE"):
        unpacked({**COMPRESSED, "format": "nvfp4-pack-quantized", "config_groups": groups}, state)


def test_modelopt_stacked_experts_are_refused():
    """The layout of Model Optimizer's stacked experts is another than that of matrices."""
    state = {"experts.down_proj": torch.zeros(3, 4, 16, dtype=torch.uint8),
             "experts.down_proj_weight_scale": torch.ones(3, 4, 2).to(torch.float8_e4m3fn),
             "experts.down_proj_weight_scale_2": torch.ones(3)}  # fmt: skip
    with pytest.raises(cc.UnsupportedError, match=r"'experts.down_proj' \[3, 4, 16\] stacks experts"):
        unpacked({"quant_method": "modelopt", "quant_algo": "NVFP4"}, state)


def test_modelopt_by_its_definition():
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes, scales, whole = torch.randint(0, 16, (24, 64)), torch.rand(24, 4).to(torch.float8_e4m3fn), torch.tensor(0.37)
    eight, scale = torch.randn(24, 64).to(torch.float8_e4m3fn), torch.tensor(0.12)
    tensors = {
        "a.weight": (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8),
        "a.weight_scale": scales,
        "a.weight_scale_2": whole,
        "a.input_scale": torch.tensor(1.0),
        "b.weight": eight,
        "b.weight_scale": scale,
        "b.k_scale": torch.tensor(1.0),
    }
    found = unpacked({"quant_method": "modelopt", "quant_algo": "NVFP4"}, tensors)
    wanted = levels[codes] * (scales.float() * whole).repeat_interleave(16, 1)
    np.testing.assert_array_equal(found.weights["a.weight"].numpy(), wanted.numpy())
    np.testing.assert_array_equal(found.weights["b.weight"].numpy(), (eight.float() * scale).numpy())
    assert found.unused == ["a.input_scale", "b.k_scale"]


def test_mxfp4_keeps_its_bits_and_goes_back_to_rows():
    from candle_convert.runtime.tensor.transposed import transposed

    case = part("mxfp4", "in")
    found = unpacked(CONFIGS["mxfp4"], case).weights["model.layers.0.mlp.experts.gate_up_proj"]
    blocks = transposed(found)
    assert blocks.dtype.name == "mxfp4"
    assert blocks.shape == (3, 8, 64)
    np.testing.assert_array_equal(
        blocks.dequantize().numpy(),
        part("mxfp4", "out")["model.layers.0.mlp.experts.gate_up_proj"].numpy().swapaxes(1, 2),
    )
    gguf = pytest.importorskip("gguf")
    raw_blocks = np.frombuffer(blocks.raw(), np.uint8).reshape(3, 8, -1)
    np.testing.assert_array_equal(
        gguf.quants.dequantize(raw_blocks, gguf.GGMLQuantizationType.MXFP4), blocks.dequantize().numpy()
    )


def with_part(case, name, tensor):
    given = part(case, "in")
    key = next(key for key in given if key.endswith(name))
    return (
        {**given, key: tensor} if tensor is not None else {each: value for each, value in given.items() if each != key}
    )


def state(**said):
    return torch.tensor(list(json.dumps(said).encode()), dtype=torch.uint8)


NF4 = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [8, 256]}
HOSTILE = [
    ("gptq bits 5", "gptq-4", {"bits": 5}, None, None, "E-PACKED-KIND"),
    ("gptq bits text", "gptq-4", {"bits": "4"}, None, None, "E-PACKED-CONFIG"),
    ("gptq bits true", "gptq-4", {"bits": True}, None, None, "E-PACKED-CONFIG"),
    ("gptq marlin", "gptq-4", {"checkpoint_format": "marlin"}, None, None, "E-PACKED-KIND"),
    ("gptq group 0", "gptq-4", {"group_size": 0}, None, None, "E-PACKED-CONFIG"),
    ("gptq group negative", "gptq-4", {"group_size": -7}, None, None, "E-PACKED-CONFIG"),
    ("gptq group another", "gptq-4", {"group_size": 16}, None, None, "E-PACKED-SHAPE"),
    ("gptq no scales", "gptq-4", {}, ".scales", None, "E-PACKED-MISSING"),
    ("gptq no zeros", "gptq-4", {}, ".qzeros", None, "E-PACKED-MISSING"),
    ("gptq floats", "gptq-4", {}, ".qweight", torch.ones(12, 32), "E-PACKED-DTYPE"),
    ("gptq vector", "gptq-4", {}, ".qweight", torch.ones(12, dtype=torch.int32), "E-PACKED-SHAPE"),
    ("gptq rows not whole", "gptq-3", {}, ".qweight", torch.ones(10, 32, dtype=torch.int32), "E-PACKED-SHAPE"),
    ("gptq g_idx short", "gptq-4", {}, ".g_idx", torch.zeros(95, dtype=torch.int32), "E-PACKED-SHAPE"),
    ("gptq g_idx outside", "gptq-4", {}, ".g_idx", torch.full((96,), 3, dtype=torch.int32), "E-PACKED-INDEX"),
    ("gptq g_idx negative", "gptq-4", {}, ".g_idx", torch.full((96,), -1, dtype=torch.int32), "E-PACKED-INDEX"),
    ("awq bits 3", "awq-gemm", {"bits": 3}, None, None, "E-PACKED-KIND"),
    ("awq version", "awq-gemm", {"version": "gemv_fast"}, None, None, "E-PACKED-KIND"),
    ("awq group 0", "awq-gemm", {"group_size": 0}, None, None, "E-PACKED-CONFIG"),
    ("awq scales", "awq-gemm", {}, ".scales", torch.ones(3, 32).half(), "E-PACKED-SHAPE"),
    ("awq gemv scales", "awq-gemv", {}, ".scales", torch.ones(32, 7).half(), "E-PACKED-SHAPE"),
    ("awq no zeros", "awq-gemm", {}, ".qzeros", None, "E-PACKED-MISSING"),
    ("bnb no absmax", "bnb-nf4-64", {}, ".absmax", None, "E-PACKED-MISSING"),
    ("bnb no map", "bnb-nf4-64", {}, ".quant_map", None, "E-PACKED-MISSING"),
    ("bnb map short", "bnb-nf4-64", {}, ".quant_map", torch.ones(15), "E-PACKED-SHAPE"),
    ("bnb weight short", "bnb-nf4-64", {}, ".weight", torch.ones(7, 1, dtype=torch.uint8), "E-PACKED-SHAPE"),
    ("bnb absmax short", "bnb-nf4-64", {}, ".absmax", torch.ones(7), "E-PACKED-SHAPE"),
    ("bnb state no json", "bnb-nf4-64", {}, "__nf4", torch.ones(9, dtype=torch.uint8), "E-PACKED-STATE"),
    ("bnb state list", "bnb-nf4-64", {}, "__nf4", torch.tensor(list(b"[]"), dtype=torch.uint8), "E-PACKED-STATE"),
    ("bnb state long", "bnb-nf4-64", {}, "__nf4", torch.full((1 << 17,), 32, dtype=torch.uint8), "E-PACKED-SHAPE"),
    ("bnb run 0", "bnb-nf4-64", {}, "__nf4", state(**NF4 | {"blocksize": 0}), "E-PACKED-STATE"),
    ("bnb shape huge", "bnb-nf4-64", {}, "__nf4", state(**NF4 | {"shape": [1 << 30, 1 << 30]}), "E-PACKED-SHAPE"),
    ("bnb shape text", "bnb-nf4-64", {}, "__nf4", state(**NF4 | {"shape": "all"}), "E-PACKED-STATE"),
    ("bnb no offset", "bnb-nf4-nested-64", {}, "__nf4", state(**NF4 | {"nested_blocksize": 256}), "E-PACKED-STATE"),
    ("bnb SCB short", "bnb-8", {}, ".SCB", torch.ones(7), "E-PACKED-SHAPE"),
    ("bnb order", "bnb-8", {}, ".weight_format", torch.tensor(1, dtype=torch.uint8), "E-PACKED-KIND"),
    ("fp8 scales", "fp8", {}, "_scale_inv", torch.ones(3, 4), "E-PACKED-SHAPE"),
    ("fp8 block 0", "fp8", {"weight_block_size": [0, 128]}, None, None, "E-PACKED-CONFIG"),
    ("fp8 block one", "fp8", {"weight_block_size": [128]}, None, None, "E-PACKED-CONFIG"),
    ("fp8 no weight", "fp8", {}, ".weight", None, "E-PACKED-MISSING"),
    ("fp8 f32", "fp8", {}, ".weight", torch.ones(32, 128), "E-PACKED-DTYPE"),
    ("ct format", "ct-group", {"format": "marlin-24"}, None, None, "E-PACKED-KIND"),
    ("ct no groups", "ct-group", {"config_groups": {}}, None, None, "E-PACKED-CONFIG"),
    ("ct bits 9", "ct-group", {"config_groups": {"a": {"weights": {"num_bits": 9}}}}, None, None, "E-PACKED-KIND"),
    (
        "ct group 0",
        "ct-group",
        {"config_groups": {"a": {"weights": {"num_bits": 4, "group_size": 0}}}},
        None,
        None,
        "E-PACKED-CONFIG",
    ),
    (
        "ct group another",
        "ct-group",
        {"config_groups": {"a": {"weights": {"num_bits": 4, "group_size": 64}}}},
        None,
        None,
        "E-PACKED-SHAPE",
    ),
    ("ct shape", "ct-group", {}, "_shape", torch.tensor([32, 1 << 40]), "E-PACKED-SHAPE"),
    ("ct no shape", "ct-group", {}, "_shape", None, "E-PACKED-MISSING"),
    ("ct no scale", "ct-group", {}, "_scale", None, "E-PACKED-MISSING"),
    ("ct zero", "ct-group-asymmetric", {}, "_zero_point", torch.ones(5, 3, dtype=torch.int32), "E-PACKED-SHAPE"),
    ("ct global", "ct-nvfp4", {}, "_global_scale", torch.ones(0), "E-PACKED-SHAPE"),
    ("mxfp4 no scales", "mxfp4", {}, "_scales", None, "E-PACKED-MISSING"),
    ("mxfp4 scales", "mxfp4", {}, "_scales", torch.ones(3, 8, 3, dtype=torch.uint8), "E-PACKED-SHAPE"),
    ("mxfp4 blocks", "mxfp4", {}, "_blocks", torch.ones(3, 8, 2, 15, dtype=torch.uint8), "E-PACKED-SHAPE"),
    ("unknown", "gptq-4", {"quant_method": "aqlm"}, None, None, "E-PACKED-METHOD"),
]


@pytest.mark.parametrize(
    ("case", "changes", "name", "tensor", "code"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
def test_contradictions(case, changes, name, tensor, code, tmp_path):
    tensors = part(case, "in") if name is None else with_part(case, name, tensor)
    folder = directory(tmp_path / "m", {**CONFIGS[case], **changes}, tensors)
    with pytest.raises(cc.Error) as caught:
        _ = [weight.numpy() for weight in cc.open(folder).weights.values()]
    assert caught.value.code == code, str(caught.value)
    assert caught.value.file is not None
    assert caught.value.hint


def test_a_weight_that_is_there_twice(tmp_path):
    folder = directory(tmp_path / "m", CONFIGS["gptq-4"], part("gptq-4", "in"), {f"{LAYER}.weight": torch.ones(32, 96)})
    with pytest.raises(cc.FormatError, match="E-PACKED-TWICE"):
        cc.open(folder)
