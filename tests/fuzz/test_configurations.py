"""Model directories whose config.json and generation_config.json are changed: every command ends as bad input may."""

import json
import random

from candle_convert.tests.fuzz.actions import chosen
from candle_convert.tests.fuzz.harness import Case, sweep
from candle_convert.tests.fuzz.synthetic import NAMES, OWN, directory
from candle_convert.tests.fuzz.values import mutated

SCALINGS = (
    {"type": "linear", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    {"type": "longrope", "long_factor": [1.0, 2.0, 3.0, 4.0], "short_factor": [1.0, 1.1, 1.2, 1.3]},
)
QUANTIZED = (
    {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True},
    {"quant_method": "awq", "bits": 4, "group_size": 32},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    {"quant_method": "mxfp4"},
    {"quant_method": "fp8", "weight_block_size": [128, 128]},
    {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 32, "strategy": "group"},
            }
        },
    },
)
GENERATION = {
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "pad_token_id": 0,
    "temperature": 0.7,
    "top_k": 40,
    "top_p": 0.9,
    "do_sample": True,
    "max_length": 20,
    "repetition_penalty": 1.1,
}
ADDED = {
    "rope_scaling": SCALINGS,
    "quantization_config": QUANTIZED,
    "rope_theta": (10000.0,),
    "architectures": (["LlamaForCausalLM"],),
    "rms_norm_eps": (1e-5,),
    "head_dim": (8,),
    "layer_types": (["full_attention"] * 2,),
    "sliding_window": (8,),
    "torch_dtype": ("float32",),
    "tie_word_embeddings": (False,),
    "partial_rotary_factor": (0.5,),
    "num_labels": (3,),
    "hidden_act": ("silu",),
    "eos_token_id": (2,),
}
"""Keys that the tiny models may lack."""


def mutant(draw: random.Random) -> Case:
    """A directory with one to three changed values."""
    files = dict(directory(draw.choice(NAMES)))
    config = json.loads(files["config.json"])
    for _ in range(draw.choice((0, 0, 1, 2))):
        key = draw.choice(sorted(ADDED))
        config.setdefault(key, draw.choice(ADDED[key]))
    for _ in range(draw.choice((1, 1, 2, 3))):
        config = mutated(config, draw)
        if not isinstance(config, dict):
            break
    generation = mutated(GENERATION, draw) if draw.random() < 0.3 else GENERATION
    files |= {"config.json": json.dumps(config).encode(), "generation_config.json": json.dumps(generation).encode()}
    return Case(files, chosen("{dir}", draw))


def test_changed_values(full):
    sweep(mutant, full, count=12)


def test_configurations_belong_to_architectures():
    assert set(OWN) <= set(NAMES)
