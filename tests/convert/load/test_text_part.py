"""Text parts of multimodal checkpoints, against the whole models of transformers."""

import json
from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.runtime.contract.weight_binding import architectures, named_model_type
from candle_convert.tests.builders.decoder_cases import DECODERS
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.builders.vision_language import tokenizer_of
from candle_convert.tests.oracles.transformers import Case, difference, made, transformers
from safetensors.numpy import load_file, save_file

torch = pytest.importorskip("torch")

CASES = {case.name: case for case in (*DECODERS, *RECURRENT)}
VISION = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
LLAMA4_VISION = {**VISION, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32}
QWEN_VISION = {
    "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64,
    "num_position_embeddings": 16,
}  # fmt: skip
PLAIN = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 16}  # fmt: skip
MROPE = {key: value for key, value in PLAIN.items() if key != "head_dim"} | {
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0, "mrope_section": [2, 3, 3]}
}
"""Positions of text are equal in every section of multimodal RoPE."""
WHOLE = {
    "gemma3": {
        "text_config": {**PLAIN, "model_type": "gemma3_text", "query_pre_attn_scalar": 16, "sliding_window": 8},
        "vision_config": {**VISION, "model_type": "siglip_vision_model"}, "mm_tokens_per_image": 4,
    },
    "mistral3": {
        "text_config": {**PLAIN, "model_type": "mistral", "sliding_window": None, "vocab_size": 400},
        "vision_config": {**VISION, "model_type": "pixtral"}, "image_token_index": 4,
    },
    "llava": {
        "text_config": {**PLAIN, "model_type": "llama"},
        "vision_config": {**VISION, "model_type": "clip_vision_model"}, "image_token_index": 95,
    },
    "llama4": {"text_config": "llama4", "vision_config": {**LLAMA4_VISION, "model_type": "llama4_vision_model"}},
    "qwen3_5": {"text_config": "qwen3_5", "vision_config": QWEN_VISION},
    "qwen2_vl": {
        "text_config": {**MROPE, "model_type": "qwen2_vl_text"},
        "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
    },
    "qwen2_5_vl": {
        "text_config": {**MROPE, "model_type": "qwen2_5_vl_text"},
        "vision_config": {**QWEN_VISION, "fullatt_block_indexes": [0]},
    },
    "qwen3_vl": {
        "text_config": {**MROPE, "model_type": "qwen3_vl_text", "head_dim": 16},
        "vision_config": {**QWEN_VISION, "deepstack_visual_indexes": [0]},
    },
    "idefics3": {
        "text_config": {**PLAIN, "model_type": "llama"},
        "vision_config": {**VISION, "model_type": "idefics3_vision"}, "scale_factor": 1, "image_token_id": 95,
    },
    "smolvlm": {
        "text_config": {**PLAIN, "model_type": "llama", "architectures": ["VLlama3ForCausalLM"]},
        "vision_config": {**VISION, "model_type": "smolvlm_vision"}, "scale_factor": 1, "image_token_id": 95,
    },
}  # fmt: skip
NAMES = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL", "smolvlm": "SmolVLM"}
CLASSES = {kind: f"{NAMES.get(kind, kind.title())}ForConditionalGeneration" for kind in WHOLE}


def configured(kind):
    """The case of a whole model."""
    config = dict(WHOLE[kind])
    if isinstance(config["text_config"], str):
        case = CASES[config["text_config"]]
        config["text_config"] = {
            key: value[0] if isinstance(value, tuple) else value for key, value in {**case.base, **case.config}.items()
        }
    cls = CLASSES[kind]
    return Case(kind, cls, {"architectures": [cls], "model_type": kind, **config}, {})


@pytest.mark.parametrize("kind", WHOLE)
def test_as_the_whole_model_without_images(kind, tmp_path):
    case = configured(kind)
    reference = made(case, 0, tmp_path / "model")
    if kind == "mistral3":  # whose mmproj has the embedding of a token
        tokenizer_of("[IMG]").save_pretrained(tmp_path / "model")
    ids = np.random.default_rng(0).integers(30, 90, (2, 13))  # special tokens have smaller ids
    whole = reference.language_model if kind == "llama4" else reference  # transformers 5.24 needs pictures for llama4
    with torch.no_grad():
        want = whole(input_ids=torch.tensor(ids)).logits.numpy()
    assert difference(models.load(tmp_path / "model", threads=1).logits(ids), want) <= case.tolerance
    for path, to in ((tmp_path / "model.gguf", None), (tmp_path / "onnx", "onnx")):
        report = cc.convert(tmp_path / "model", path, to=to)
        assert difference(models.load(path, threads=1).logits(ids), want) <= case.tolerance
        if to == "onnx" and named_model_type(kind) is not None:
            continue  # all graphs of the whole are there
        if (family := named_model_type(kind)) is not None and family.mmproj:
            assert (tmp_path / "mmproj-model.gguf").exists()
            assert all(note.code != "W-ARCH-TEXT" for note in report.notes)
            continue
        (note,) = [note for note in report.notes if note.code == "W-ARCH-TEXT"]
        assert note.message.startswith(f"only the text part of {kind} is used; ")
        assert any(part in note.message for part in ("multi_modal_projector", "visual", "connector"))
    assert run(["verify", str(tmp_path / "model"), str(tmp_path / "model.gguf")]) == 0


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl"])
def test_older_files_without_a_nested_configuration(kind, tmp_path):
    """As Qwen's own repositories have it: the language model's keys beside the vision encoder's object."""
    case = configured(kind)
    text = {
        key: value for key, value in case.config["text_config"].items() if key not in ("model_type", "rope_parameters")
    }
    scaling = {"rope_theta": 50000.0, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    flat = {key: value for key, value in case.config.items() if key != "text_config"} | text | scaling
    reference = made(replace(case, config=flat), 0, tmp_path)
    ids = np.random.default_rng(0).integers(3, 90, (2, 13))
    with torch.no_grad():
        want = reference(input_ids=torch.tensor(ids)).logits.numpy()
    assert difference(models.load(tmp_path, threads=1).logits(ids), want) <= case.tolerance


def test_parts_below_the_model(tmp_path):
    """Gemma 3n's names, whose vision tower transformers builds with another library only."""
    case = CASES["gemma3n"]
    reference = made(case, 0, tmp_path)
    weights = {
        f"model.language_model.{name.removeprefix('model.')}" if name.startswith("model.") else name: array
        for name, array in load_file(tmp_path / "model.safetensors").items()
    }
    weights["model.audio_tower.conv.weight"] = np.ones((3, 3), np.float32)
    save_file(weights, tmp_path / "model.safetensors")
    text = json.loads((tmp_path / "config.json").read_text())
    whole = {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    ids = np.random.default_rng(0).integers(3, 90, (1, 9))
    with torch.no_grad():
        want = reference(input_ids=torch.tensor(ids)).logits.numpy()
    assert difference(models.load(tmp_path, threads=1).logits(ids), want) <= case.tolerance
    cc.convert(tmp_path, tmp_path / "copy", to="safetensors")
    copied = load_file(tmp_path / "copy" / "model.safetensors")
    assert copied.keys() == weights.keys(), "a copy keeps every part"


DEFAULTS = {kind: values for each in architectures() for kind, values in each.nested_defaults.items()}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_of_nested_configurations(kind):
    stated = transformers().CONFIG_MAPPING[kind]()
    for key, value in DEFAULTS[kind].items():
        if key != "rope_theta":
            assert getattr(stated, key) == value, key
