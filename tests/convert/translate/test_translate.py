"""Models under other names: Hugging Face to GGUF and back, either to ONNX, and every result runs like the original in
transformers."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.oracles.transformers import cases, expected, made, transformers

CASES = [
    *cases(
        "LlamaForCausalLM",
        "llama",
        llama={
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    *cases("LlamaForCausalLM", "llama", llama_bias={"attention_bias": True, "mlp_bias": True}),
    *cases("MixtralForCausalLM", "mixtral", mixtral={"num_local_experts": 4, "num_experts_per_tok": 2}),
    *cases("Qwen2ForCausalLM", "qwen2", qwen2={"tie_word_embeddings": True}),
    *cases("Gemma2ForCausalLM", "gemma2", gemma2={"head_dim": 16, "query_pre_attn_scalar": 16}),
]
BACK = [
    *cases("GemmaForCausalLM", "gemma", gemma={"head_dim": 16, "hidden_act": "gelu_pytorch_tanh"}),
    *cases(
        "Starcoder2ForCausalLM", "starcoder2", starcoder2={"hidden_act": "gelu_pytorch_tanh", "sliding_window": None}
    ),
    *cases(
        "StableLmForCausalLM",
        "stablelm",
        stablelm={"use_qkv_bias": True, "qk_layernorm": False, "partial_rotary_factor": 0.5},
    ),
    *cases(
        "MptForCausalLM",
        "mpt",
        mpt={
            "d_model": 64,
            "n_heads": 4,
            "n_layers": 3,
            "max_seq_len": 64,
            "expansion_ratio": 4,
            "attn_config": {"alibi": True, "alibi_bias_max": 8},
        },
    ),
    *cases(
        "PhiForCausalLM", "phi", phi={"hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "num_key_value_heads": 4}
    ),
    *cases(
        "GPTBigCodeForCausalLM",
        "gpt_bigcode",
        gpt_bigcode={
            "n_embd": 64,
            "n_head": 4,
            "n_layer": 2,
            "n_positions": 64,
            "n_inner": 96,
            "multi_query": True,
            "activation_function": "gelu_pytorch_tanh",
        },
    ),
]
IDS = np.array([[5, 17, 3, 88, 41, 9, 23, 70]])


def checkpoint(case, tmp_path):
    folder = tmp_path / "tiny-model"
    reference = made(case, 0, folder)
    return folder, expected(reference, IDS, None)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def model(request, tmp_path):
    return checkpoint(request.param, tmp_path)


def close(got, want):
    return np.abs(got - want).max() <= 3e-5 * np.abs(want).max()


def test_to_gguf_and_back(model, tmp_path):
    folder, logits = model
    cc.convert(folder, tmp_path / "model.gguf")
    graph = cc.open(tmp_path / "model.gguf")
    assert graph.metadata["general.name"] == "Tiny Model"
    assert all(
        name.startswith(("blk.", "token_embd.", "position_embd.", "output", "rope_freqs.")) for name in graph.weights
    )
    assert close(models.load(tmp_path / "model.gguf").logits(IDS), logits)
    cc.convert(tmp_path / "model.gguf", tmp_path / "back", to="safetensors")
    assert set(cc.open(tmp_path / "back").weights) == set(cc.open(folder).weights)
    again = transformers().AutoModelForCausalLM.from_pretrained(tmp_path / "back", attn_implementation="eager")
    assert close(expected(again, IDS, None), logits)


@pytest.mark.parametrize("case", BACK, ids=lambda case: case.name)
def test_settings_are_spelled_as_transformers_spells_them(case, tmp_path):
    test_to_gguf_and_back(checkpoint(case, tmp_path), tmp_path)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_to_onnx(model, tmp_path, dtype):
    folder, logits = model
    cc.convert(folder, tmp_path / "model.safetensors", dtype=dtype)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    narrow = models.load(tmp_path).logits(IDS)
    cc.convert(tmp_path, tmp_path / "model.onnx")
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    past = {
        given.name: np.zeros(
            [1 if length == "batch_size" else 0 if isinstance(length, str) else length for length in given.shape],
            np.float32,
        )
        for given in session.get_inputs()
        if given.name.startswith("past_")
    }
    results = [result.name for result in session.get_outputs()]
    found = []
    for at in range(IDS.shape[1]):
        feeds = {
            "input_ids": IDS[:, at : at + 1],
            "attention_mask": np.ones((1, at + 1), np.int64),
            "position_ids": np.array([[at]]),
            **past,
        }
        outputs = dict(zip(results, session.run(None, feeds), strict=True))
        past = {name: outputs[name.replace("past_key_values", "present")] for name in past}
        found.append(outputs["logits"])
    assert close(np.concatenate(found, axis=1), narrow)
    assert dtype != "f32" or close(narrow, logits)


def test_unknown_architectures_keep_their_names_and_say_so(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    cc.save_file({"a.weight": np.ones((2, 2), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "lama"}))
    report = cc.convert(folder, tmp_path / "model.gguf", weights_only=True)
    assert [note.code for note in report.notes] == ["W-ARCH"]
    assert list(cc.open(tmp_path / "model.gguf").weights) == ["a.weight"]
    with pytest.raises(cc.UnsupportedError, match=r"E-ARCH .*\"lama\".*llama"):
        models.load(folder)


def test_layers_that_predict_further_tokens_are_left_out_and_told(tmp_path):
    (case,) = cases(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        glm4_moe={
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 32,
            "routed_scaling_factor": 1.5,
            "norm_topk_prob": True,
            "head_dim": 16,
            "partial_rotary_factor": 0.5,
            "num_nextn_predict_layers": 0,
        },
    )
    made(case, 0, tmp_path / "model")
    tensors = cc.load_file(tmp_path / "model" / "model.safetensors")
    further = "model.layers.3.eh_proj.weight"
    cc.save_file({**tensors, further: np.ones((64, 128), np.float32)}, tmp_path / "model" / "model.safetensors")
    report = cc.convert(tmp_path / "model", tmp_path / "m.gguf")
    (note,) = [note for note in report.notes if note.code == "W-ARCH-UNUSED"]
    assert "1 matrix skipped (32.00 KiB)" in note.message
    assert further in note.message


def test_a_file_beside_its_config_goes_to_gguf_as_its_directory_does(tmp_path):
    folder, _ = checkpoint(CASES[0], tmp_path)
    cc.convert(folder, tmp_path / "directory.gguf")
    cc.convert(folder / "model.safetensors", tmp_path / "file.gguf")
    assert (tmp_path / "file.gguf").read_bytes() == (tmp_path / "directory.gguf").read_bytes()
