"""Make mixes.json.gz: for models of many architectures, the type that llama-quantize gives each tensor, for every file
type.

usage: make_mixes.py LLAMA_QUANTIZE. The models are GGUF files with small matrices of real numbers of layers, made with
the gguf library; llama-quantize --dry-run tells the types without reading values. For each run the result is a string
with one letter for each tensor.
"""

import gzip
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from candle_convert.tests.builders.paths import VECTORS
from candle_convert.tests.builders.reproducible_models import FILE_TYPES

E, F = 256, 512
LINE = re.compile(r"\[ *\d+/ *\d+\] +(\S+) +- \[.*?\], type = +(\w+), size = .*?MiB(?: -> .*?MiB \((\w+)\))?")
DENSE = ("attn_norm:{E}", "attn_q:{E}x{E}", "attn_k:{K}x{E}", "attn_v:{K}x{E}", "attn_output:{E}x{E}", "ffn_norm:{E}")
FFN = ("ffn_gate:{F}x{E}", "ffn_up:{F}x{E}", "ffn_down:{E}x{F}")
MOE = ("ffn_gate_inp:{X}x{E}", "ffn_gate_exps:{X}x{F}x{E}", "ffn_up_exps:{X}x{F}x{E}", "ffn_down_exps:{X}x{E}x{F}")
SHARED = ("ffn_gate_shexp:{F}x{E}", "ffn_up_shexp:{F}x{E}", "ffn_down_shexp:{E}x{F}")
OUTER = ("token_embd:1000x{E}", "output_norm:{E}", "output:1000x{E}")
TIED = OUTER[:2]
FUSED = ("attn_norm:{E}", "attn_qkv:768x{E}", "attn_output:{E}x{E}", "ffn_up:{F}x{E}", "ffn_down:{E}x{F}")
MAMBA = (
    "attn_norm:{E}",
    "ssm_in:1024x{E}",
    "ssm_conv1d:{F}x4",
    "ssm_x:48x{F}",
    "ssm_dt:{F}x16",
    "ssm_dt.bias:{F}",
    "ssm_a=:{F}x16",
    "ssm_d=:{F}",
    "ssm_out:{E}x{F}",
)
RWKV = (
    "attn_norm:{E}",
    "time_mix_w1:160x{E}",
    "time_mix_w2:5x32x{E}",
    "time_mix_lerp_fused:5x1x1x{E}",
    "time_mix_first:4x64",
    "time_mix_decay=:{E}",
    "time_mix_decay_w1:64x{E}",
    "time_mix_decay_w2:{E}x64",
    "time_mix_key:{E}x{E}",
    "time_mix_value:{E}x{E}",
    "time_mix_receptance:{E}x{E}",
    "time_mix_gate:{E}x{E}",
    "time_mix_output:{E}x{E}",
    "channel_mix_key:{F}x{E}",
    "channel_mix_value:{E}x{F}",
    "channel_mix_receptance:{E}x{E}",
)
MLA = (
    "attn_norm:{E}",
    "attn_q_a:128x{E}",
    "attn_q_b:{E}x128",
    "attn_kv_a_mqa:96x{E}",
    "attn_kv_b:{E}x64",
    "attn_k_b:4x64x32",
    "attn_v_b:4x32x64",
    "attn_output:{E}x{E}",
    "ffn_norm:{E}",
)
CONV = ("shortconv.conv:{E}x3", "shortconv.in_proj:768x{E}", *FFN)
BERT = (
    "attn_q:{E}x{E}",
    "attn_k:{E}x{E}",
    "attn_v:{E}x{E}",
    "attn_output:{E}x{E}",
    "attn_output_norm:{E}",
    "ffn_up:{F}x{E}",
    "ffn_down:{E}x{F}",
)


def model(**fields):
    """What a model is made of, by name."""
    return fields


MODELS = {
    "llama-32-gqa": model(arch="llama", layers=32, heads=(8, 2), outer=OUTER, block=(*DENSE, *FFN)),
    "llama-32-mha": model(arch="llama", layers=32, heads=(4, 4), outer=OUTER, block=(*DENSE, *FFN)),
    "llama-16-tied": model(arch="llama", layers=16, heads=(8, 2), outer=TIED, block=(*DENSE, *FFN)),
    "llama-40": model(arch="llama", layers=40, heads=(5, 5), outer=OUTER, block=(*DENSE, *FFN), embd=320, inner=864),
    "llama-80-gqa": model(arch="llama", layers=80, heads=(8, 1), outer=OUTER, block=(*DENSE, *FFN)),
    "llama-80-mha": model(arch="llama", layers=80, heads=(8, 8), outer=OUTER, block=(*DENSE, *FFN)),
    "llama-odd": model(arch="llama", layers=5, heads=(4, 2), outer=OUTER, block=(*DENSE, *FFN), embd=200, inner=352),
    "mixtral-8": model(arch="llama", layers=32, heads=(8, 2), outer=OUTER, block=(*DENSE, *MOE), experts=8),
    "mixtral-old": model(
        arch="llama",
        layers=12,
        heads=(4, 4),
        outer=OUTER,
        experts=8,
        block=(
            *DENSE,
            "ffn_gate_inp:{X}x{E}",
            *(f"ffn_{part}.{x}:{{F}}x{{E}}" for part in ("gate", "up") for x in range(8)),
            *(f"ffn_down.{x}:{{E}}x{{F}}" for x in range(8)),
        ),
    ),
    "qwen2-28": model(
        arch="qwen2",
        layers=28,
        heads=(7, 1),
        outer=OUTER,
        block=(*DENSE, "attn_q.bias:{E}", "attn_v.bias:{K}", *FFN),
        embd=448,
    ),
    "qwen2-80": model(arch="qwen2", layers=80, heads=(8, 4), outer=OUTER, block=(*DENSE, *FFN)),
    "qwen3moe-48": model(
        arch="qwen3moe", layers=48, heads=(8, 1), outer=OUTER, block=(*DENSE, "attn_q_norm:32", *MOE), experts=16
    ),
    "gemma-18": model(arch="gemma", layers=18, heads=(8, 1), outer=TIED, block=(*DENSE, *FFN)),
    "gemma3n-30": model(
        arch="gemma3n",
        layers=30,
        heads=(8, 2),
        experts=0,
        outer=(*TIED, "per_layer_token_embd:1000x512", "per_layer_model_proj:512x{E}", "altup_proj:3x{E}x{E}"),
        block=(*DENSE, *FFN, "laurel_l:64x{E}", "laurel_r:{E}x64", "inp_gate:{E}x{E}", "proj:{E}x{E}"),
    ),
    "falcon-32": model(arch="falcon", layers=32, heads=(8, 1), outer=OUTER, block=FUSED),
    "falcon-60": model(arch="falcon", layers=60, heads=(8, 8), outer=OUTER, block=FUSED, embd=288),
    "phi2-32": model(arch="phi2", layers=32, heads=(8, 8), outer=(*OUTER, "output.bias:1000"), block=FUSED),
    "phi3-32": model(arch="phi3", layers=32, heads=(8, 8), outer=OUTER, block=FUSED),
    "deepseek2-27": model(
        arch="deepseek2",
        layers=27,
        heads=(8, 1),
        outer=OUTER,
        block=(*MLA, *MOE, *SHARED),
        first=(*MLA, *FFN),
        experts=64,
    ),
    "deepseek2-60": model(
        arch="deepseek2",
        layers=60,
        heads=(8, 8),
        outer=OUTER,
        block=(*MLA, *MOE, *SHARED),
        first=(*MLA, *FFN),
        experts=16,
    ),
    "mamba-24": model(arch="mamba", layers=24, heads=None, outer=OUTER, block=MAMBA),
    "rwkv6-24": model(arch="rwkv6", layers=24, heads=None, outer=(*OUTER, "token_embd_norm:{E}"), block=RWKV),
    "bert-12": model(
        arch="bert",
        layers=12,
        heads=(4, 4),
        block=BERT,
        embd=384,
        inner=1536,
        outer=("token_embd:1000x{E}", "position_embd:512x{E}", "token_types:2x{E}", "token_embd_norm:{E}"),
    ),
    "gptoss-24": model(arch="gpt-oss", layers=24, heads=(8, 1), outer=OUTER, block=(*DENSE, *MOE), experts=32),
    "t5-6": model(
        arch="t5",
        layers=6,
        heads=(4, 4),
        outer=OUTER,
        block=(),
        extra=("enc.blk", "dec.blk"),
        extra_block=(*DENSE, "attn_rel_b:4x32", "cross_attn_v:{E}x{E}", "cross_attn_o:{E}x{E}", *FFN),
    ),
    "lfm2-16": model(arch="lfm2", layers=16, heads=(8, 2), outer=TIED, block=CONV, every=(3, (*DENSE, *FFN))),
    "jamba-32": model(
        arch="jamba", layers=32, heads=(8, 2), outer=OUTER, block=(*MAMBA, *FFN), every=(8, (*DENSE, *MOE)), experts=16
    ),
}
VARIANTS = {
    "": (),
    "imatrix": ("--imatrix", "IMATRIX"),
    "pure": ("--pure",),
    "leave": ("--leave-output-tensor",),
    "typed": ("--output-tensor-type", "q8_0", "--token-embedding-type", "iq4_nl"),
    "patterns": (
        "--tensor-type",
        r"blk\.[0-9]\.attn_v=q5_k",
        "--tensor-type",
        "FFN_down=q3_K",
        "--tensor-type",
        "embd=q6_k",
    ),
}
EXTRA_VARIANTS = ("llama-32-gqa", "llama-16-tied", "gemma3n-30", "falcon-60", "falcon-32", "mixtral-8", "jamba-32")
VARIANT_TYPES = ("Q4_K_M", "Q3_K_M", "Q2_K", "IQ3_XXS", "Q4_0", "Q8_0", "MXFP4_MOE")
HPARAMS = {
    "context_length": 512,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.sliding_window": 128,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 512,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 16,
    "wkv.head_size": 64,
    "time_mix_extra_dim": 32,
    "time_decay_extra_dim": 64,
    "rescale_every_n_layers": 6,
    "token_shift_count": 2,
    "attention.q_lora_rank": 128,
    "attention.kv_lora_rank": 64,
    "attention.key_length_mla": 96,
    "attention.value_length_mla": 64,
    "expert_feed_forward_length": 512,
    "leading_dense_block_count": 1,
    "expert_shared_count": 1,
    "expert_weights_scale": 1.0,
    "attention.relative_buckets_count": 32,
    "attention.causal": False,
    "shortconv.l_cache": 3,
}


def shapes(model):
    """Name -> shape of all tensors, slowest dimension first."""
    embd, inner = model.get("embd", E), model.get("inner", F)
    heads = model["heads"] or (1, 1)
    lengths = {"E": embd, "F": inner, "K": embd * heads[1] // heads[0], "X": model.get("experts", 0)}
    found = {}

    def add(prefix, rows):
        for row in rows:
            name, text = row.format(**lengths).split(":")
            suffix = "" if name.endswith(("=", ".bias")) else ".weight"
            found[f"{prefix}{name.rstrip('=')}{suffix}"] = [int(length) for length in text.split("x")]

    add("", model["outer"])
    for layer in range(model["layers"]):
        rows = model["first"] if layer == 0 and "first" in model else model["block"]
        if "every" in model and layer % model["every"][0] == model["every"][0] - 1:
            rows = model["every"][1]
        add(f"blk.{layer}.", rows)
        for prefix in model.get("extra", ()):
            add(f"{prefix}.{layer}.", model["extra_block"])
    return found


def metadata(model):
    """The hyper-parameters that decide types, with those that llama.cpp wants to see."""
    keys = {
        "block_count": model["layers"],
        "embedding_length": model.get("embd", E),
        "feed_forward_length": model.get("inner", F),
    }
    if model["heads"]:
        keys |= {"attention.head_count": model["heads"][0], "attention.head_count_kv": model["heads"][1]}
    if model.get("experts"):
        keys |= {"expert_count": model["experts"], "expert_used_count": 2}
    if "every" in model:
        period = model["every"][0]
        keys["attention.head_count_kv"] = [
            model["heads"][1] if layer % period == period - 1 else 0 for layer in range(model["layers"])
        ]
    return keys


def write_model(path, model, tensors):
    writer = gguf.GGUFWriter(path, model["arch"])
    for key, value in {**HPARAMS, **metadata(model)}.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}[
            type(value)
        ]
        add(f"{model['arch']}.{key}", value)
    size = 0
    for name, shape in tensors.items():
        dtype = np.dtype(np.float32 if len(shape) == 1 else np.float16)
        nbytes = int(np.prod(shape)) * dtype.itemsize
        writer.add_tensor_info(name, shape, dtype, nbytes)
        size += -(-nbytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with open(path, "r+b") as file:
        file.seek(0, 2)
        file.truncate(-(-file.tell() // 32) * 32 + size)


def write_importance(path):
    writer = gguf.GGUFWriter(path, "")
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["text"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 512)
    writer.add_tensor("some.weight.in_sum2", np.ones((1, 4), np.float32))
    writer.add_tensor("some.weight.counts", np.ones((1, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def types(tool, options, path, file_type):
    """Name -> type, in the order of the output."""
    run = subprocess.run([tool, "--dry-run", *options, path, file_type], capture_output=True, text=True)
    text = run.stdout + run.stderr
    if run.returncode:
        return None, text
    return {name: (new or old).lower() for name, old, new in LINE.findall(text)}, text


def main(tool):
    letters = {}
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        importance = str(Path(folder) / "imatrix.gguf")
        write_importance(importance)
        for name, fields in MODELS.items():
            path = str(Path(folder) / f"{name}.gguf")
            tensors = shapes(fields)
            write_model(path, fields, tensors)
            runs = {}
            for variant, options in VARIANTS.items():
                if variant not in ("", "imatrix") and name not in EXTRA_VARIANTS:
                    continue
                for file_type in FILE_TYPES if variant in ("", "imatrix") else VARIANT_TYPES:
                    found, text = types(
                        tool, [importance if option == "IMATRIX" else option for option in options], path, file_type
                    )
                    if found is None:
                        if "no tensor type fallback" not in text or file_type not in ("Q1_0", "MXFP4_MOE"):
                            sys.exit(f"{name} {variant} {file_type}:\n{text[-3000:]}")
                        runs[f"{file_type} {variant}"] = None
                        continue
                    assert found.keys() == tensors.keys(), (name, found.keys() ^ tensors.keys(), text[-2000:])
                    runs[f"{file_type} {variant}"] = "".join(
                        letters.setdefault(found[key], chr(65 + len(letters))) for key in found
                    )
            keys = {
                "general.architecture": fields["arch"],
                **{f"{fields['arch']}.{key}": value for key, value in metadata(fields).items()},
            }
            models[name] = {"metadata": keys, "tensors": tensors, "order": list(found), "runs": runs}
            Path(path).unlink()
    data = {"variants": VARIANTS, "letters": {letter: dtype for dtype, letter in letters.items()}, "models": models}
    target = VECTORS / "mixes.json.gz"
    target.write_bytes(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), 9, mtime=0))
    print(
        len(models),
        "models,",
        sum(len(model["runs"]) for model in models.values()),
        "runs,",
        target.stat().st_size,
        "bytes",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
