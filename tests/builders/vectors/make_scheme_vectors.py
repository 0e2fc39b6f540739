"""Make schemes.safetensors: tiny layers that the libraries themselves quantized, and what these libraries make of them
again.

Each case has a `quantization_config` in the metadata, tensors ``CASE/in/NAME`` and the weights ``CASE/out/NAME``. Needs
bitsandbytes, compressed-tensors and transformers on the path, and the unpacked sources of AutoGPTQ (0.7) and AutoAWQ
(0.2), which are only imported in part:

    python tests/builders/vectors/make_scheme_vectors.py AUTO_GPTQ AUTOAWQ
"""

import importlib
import json
import sys
import types
from pathlib import Path

import torch
from candle_convert.tests.builders.paths import VECTORS
from safetensors.torch import save_file

OUT, IN = 32, 96
NAME = "model.layers.0.mlp.up_proj"
CASES = {}


def case(name, config, tensors, weights):
    CASES[name] = (config, tensors, weights)


def folder(package, path):
    """A package whose modules can be imported without what its own __init__ imports."""
    module = types.ModuleType(package)
    module.__path__ = [str(path)]
    sys.modules[package] = module


def drawn(outputs, inputs, bits, group, order=None):
    """A layer whose weights are exactly ``(code - zero) * scale``, and these scales and zeros [out, groups]."""
    of_inputs = torch.arange(inputs) // group if order is None else order
    groups = int(of_inputs.max()) + 1
    scales, zeros = (torch.rand(outputs, groups) + 0.25).half().float(), torch.randint(1, 2**bits, (outputs, groups))
    linear = torch.nn.Linear(inputs, outputs, bias=False)
    linear.weight.data = (torch.randint(0, 2**bits, (outputs, inputs)) - zeros[:, of_inputs]) * scales[:, of_inputs]
    return linear, scales, zeros


def gptq(path):
    folder("auto_gptq", path / "auto_gptq")
    folder("auto_gptq.nn_modules", path / "auto_gptq/nn_modules")
    folder("auto_gptq.nn_modules.qlinear", path / "auto_gptq/nn_modules/qlinear")
    library = importlib.import_module("auto_gptq.nn_modules.qlinear.qlinear_cuda")
    for bits in (2, 3, 4, 8):
        for ordered in (False, True):
            inputs = IN if bits != 8 else IN + 32
            order = (torch.arange(inputs) // 32)[torch.randperm(inputs)] if ordered else None
            linear, scales, zeros = drawn(OUT, inputs, bits, 32, order)
            layer = library.QuantLinear(bits, 32, inputs, OUT, False, weight_dtype=torch.float32)
            layer.pack(linear, scales, zeros, order)
            config = {"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": ordered, "sym": False}
            tensors = {
                f"{NAME}.{part}": getattr(layer, part).contiguous() for part in ("qweight", "qzeros", "scales", "g_idx")
            }
            weight = layer(torch.eye(inputs)).detach().T.contiguous()
            assert torch.equal(weight, linear.weight)
            tensors[f"{NAME}.scales"] = tensors[f"{NAME}.scales"].half()
            case(f"gptq-{bits}{'-ordered' if ordered else ''}", config, tensors, {f"{NAME}.weight": weight})


def awq(path):
    folder("awq", path / "awq")
    folder("awq.modules", path / "awq/modules")
    folder("awq.modules.linear", path / "awq/modules/linear")
    folder("awq.utils", path / "awq/utils")
    gemm = importlib.import_module("awq.modules.linear.gemm")
    gemv = importlib.import_module("awq.modules.linear.gemv")
    packing = importlib.import_module("awq.utils.packing_utils")
    linear, scales, zeros = drawn(OUT, 128, 4, 64)
    layer = gemm.WQLinear_GEMM.from_linear(
        linear, 4, 64, scales=scales.T.contiguous(), zeros=zeros.T.contiguous().int()
    )
    weight = packing.dequantize_gemm(layer.qweight, layer.qzeros, layer.scales.float(), 4, 64).T.contiguous()
    assert torch.equal(weight, linear.weight)
    config = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
    case(
        "awq-gemm",
        config,
        {f"{NAME}.{part}": getattr(layer, part) for part in ("qweight", "qzeros", "scales")},
        {f"{NAME}.weight": weight},
    )
    layer = gemv.WQLinear_GEMV.from_linear(linear, 4, 64, scales=scales.contiguous(), zeros=zeros.contiguous().int())
    case(
        "awq-gemv",
        config | {"version": "GEMV"},
        {f"{NAME}.{part}": getattr(layer, part) for part in ("qweight", "qzeros", "scales")},
        {f"{NAME}.weight": weight},
    )


def bitsandbytes():
    """Rows of whole runs: where runs go over the end of a row, this library's CPU kernel does not do as its CUDA kernel
    and its own encoder."""
    import bitsandbytes as library

    weight = torch.randn(8, 256)
    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            for run in (64, 256):
                packed, state = library.functional.quantize_4bit(
                    weight, blocksize=run, compress_statistics=nested, quant_type=kind
                )
                tensors = {
                    f"{NAME}.weight": packed,
                    **{f"{NAME}.weight.{key}": value for key, value in state.as_dict(packed=True).items()},
                }
                again = library.functional.dequantize_4bit(packed, state)
                case(
                    f"bnb-{kind}{'-nested' if nested else ''}-{run}",
                    {"quant_method": "bitsandbytes", "load_in_4bit": True},
                    tensors,
                    {f"{NAME}.weight": again},
                )
    codes, scales, _ = library.functional.int8_vectorwise_quant(weight.half())
    tensors = {
        f"{NAME}.weight": codes,
        f"{NAME}.SCB": scales,
        f"{NAME}.weight_format": torch.tensor(0, dtype=torch.uint8),
    }
    again = library.functional.int8_vectorwise_dequant(codes, scales)
    case("bnb-8", {"quant_method": "bitsandbytes", "load_in_8bit": True}, tensors, {f"{NAME}.weight": again})


def compressed():
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    rows = (
        ("group", "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": True}),
        (
            "group-asymmetric",
            "pack-quantized",
            {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": False},
        ),
        ("channel", "pack-quantized", {"num_bits": 4, "strategy": "channel", "symmetric": True}),
        ("int8-packed", "pack-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}),
        ("int3", "pack-quantized", {"num_bits": 3, "strategy": "group", "group_size": 32, "symmetric": True}),
        ("int8", "int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": True}),
        ("int8-asymmetric", "int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}),
        ("fp8", "float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}),
        ("fp8-tensor", "float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}),
        (
            "fp8-block",
            "float-quantized",
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 64], "symmetric": True},
        ),
        (
            "nvfp4",
            "nvfp4-pack-quantized",
            {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True},
        ),
        (
            "mxfp4",
            "mxfp4-pack-quantized",
            {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True},
        ),
    )
    for name, form, given in rows:
        args = QuantizationArgs(**given)
        weight = torch.randn(OUT, IN) if args.strategy != "block" else torch.randn(OUT, 128)
        blocks = (
            weight[:, None] if args.strategy in ("channel", "tensor") else weight.reshape(OUT, -1, args.group_size or 1)
        )
        if args.strategy == "tensor":
            blocks = weight.reshape(1, 1, -1)
        if args.strategy == "block":
            height, width = args.block_structure
            blocks = (
                weight.reshape(OUT // height, height, -1, width)
                .transpose(1, 2)
                .reshape(OUT // height, -1, height * width)
            )
        state = {"weight": weight}
        if form.startswith(("nvfp4", "mxfp4")):
            largest = blocks.abs().amax(-1)
            if form.startswith("nvfp4"):
                state["weight_global_scale"] = (448 * 6 / weight.abs().max()).reshape(1)
                scale = (largest / 6 * state["weight_global_scale"]).to(torch.float8_e4m3fn).float()
            else:
                scale = torch.exp2(torch.floor(torch.log2(largest)) - 2)
            state["weight_scale"] = scale
        else:
            scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args)
            state["weight_scale"], state["weight_zero_point"] = (
                scale.reshape(-1) if args.strategy == "tensor" else scale,
                zero,
            )
            if args.symmetric:
                del state["weight_zero_point"]
        library = BaseCompressor.get_value_from_registry(form)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        packed = library.compress(state, scheme)
        again = library.decompress(dict(packed), scheme)["weight"].float()
        config = {
            "quant_method": "compressed-tensors",
            "format": form,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": given}},
        }
        tensors = {f"{NAME}.{key}": value.contiguous() for key, value in packed.items()}
        case(f"ct-{name}", config, tensors, {f"{NAME}.weight": again})


def transformers():
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    weight = torch.randn(OUT, 128).to(torch.float8_e4m3fn)
    for name, scales in (
        ("", torch.rand(2, 4)),
        ("-exponents", torch.randint(120, 130, (2, 4), dtype=torch.uint8).view(torch.float8_e8m0fnu)),
    ):
        again = Fp8Dequantize(None)._dequantize_one(weight, scales, torch.float32)
        case(f"fp8{name}", {"quant_method": "fp8", "weight_block_size": [16, 32], "activation_scheme": "dynamic"},
             {f"{NAME}.weight": weight, f"{NAME}.weight_scale_inv": scales}, {f"{NAME}.weight": again})  # fmt: skip
    scales = torch.rand(OUT, 1)
    tensors = {f"{NAME}.weight": weight, f"{NAME}.weight_scale": scales}
    case("fbgemm", {"quant_method": "fbgemm_fp8"}, tensors, {f"{NAME}.weight": weight.float() * scales})
    blocks, scales = (
        torch.randint(0, 256, (3, 8, 2, 16), dtype=torch.uint8),
        torch.randint(110, 135, (3, 8, 2), dtype=torch.uint8),
    )
    again = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    experts = "model.layers.0.mlp.experts.gate_up_proj"
    case(
        "mxfp4",
        {"quant_method": "mxfp4"},
        {f"{experts}_blocks": blocks, f"{experts}_scales": scales},
        {experts: again.contiguous()},
    )


def main():
    torch.manual_seed(0)
    gptq(Path(sys.argv[1]))
    awq(Path(sys.argv[2]))
    bitsandbytes()
    compressed()
    transformers()
    tensors = {}
    for name, (_, given, wanted) in CASES.items():
        tensors |= {f"{name}/in/{key}": value.clone() for key, value in given.items()}
        tensors |= {f"{name}/out/{key}": value.clone() for key, value in wanted.items()}
    configs = {name: json.dumps(config) for name, (config, _, _) in CASES.items()}
    save_file(tensors, VECTORS / "schemes.safetensors", {"configs": json.dumps(configs)})


if __name__ == "__main__":
    main()
