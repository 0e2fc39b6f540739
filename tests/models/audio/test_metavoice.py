"""Both stages of MetaVoice against their definition in torch, under the names of files, through GGUF and ONNX."""

import json

import candle_convert as cc
import numpy as np
import onnxruntime
import pytest
import torch
from candle_convert.runtime.base.errors import FormatError
from torch.nn import functional

HEADS, KV_HEADS, WIDTH, INNER, LAYERS, VOICE, POSITIONS = 4, 2, 32, 48, 2, 12, 24
SIZE, VOCABULARY = WIDTH // HEADS, 50
FIRST = {
    "n_layer": LAYERS, "n_head": HEADS, "dim": WIDTH, "vocab_size": VOCABULARY, "speaker_emb_dim": VOICE,
    "block_size": POSITIONS, "intermediate_size": INNER, "n_local_heads": KV_HEADS, "norm_eps": 1e-5,
}  # fmt: skip
KNOWN, FILLED = [40, 31], [31, 31, 31]
SECOND = {
    "block_size": POSITIONS, "vocab_sizes": KNOWN, "target_vocab_sizes": FILLED, "n_layer": LAYERS, "n_head": HEADS,
    "n_embd": WIDTH, "bias": False, "causal": False, "norm_type": "layernorm", "nonlinearity_type": "gelu",
}  # fmt: skip
RANDOM = np.random.default_rng(0)
SPEAKER = RANDOM.standard_normal((2, VOICE)).astype(np.float32)
SPEAKER[1] = 0
TOKENS = RANDOM.integers(0, VOCABULARY, (2, 9))
CODES = np.stack([RANDOM.integers(0, size, (2, POSITIONS)) for size in KNOWN], 1)
TOLERANCE = 2e-5


def weights(shapes):
    torch.manual_seed(0)
    return {
        name: torch.randn(shape) / shape[-1] ** 0.5 if len(shape) > 1 else 1 + torch.randn(shape) / 5
        for name, shape in shapes.items()
    }


def first_weights():
    fused, layer = (HEADS + 2 * KV_HEADS) * SIZE, {}
    for i in range(LAYERS):
        layer |= {
            f"layers.{i}.attention_norm.weight": (WIDTH,),
            f"layers.{i}.attention.wqkv.weight": (fused, WIDTH),
            f"layers.{i}.attention.wo.weight": (WIDTH, WIDTH),
            f"layers.{i}.ffn_norm.weight": (WIDTH,),
            f"layers.{i}.feed_forward.swiglu.w1.weight": (INNER, WIDTH),
            f"layers.{i}.feed_forward.swiglu.w3.weight": (INNER, WIDTH),
            f"layers.{i}.feed_forward.w2.weight": (WIDTH, INNER),
        }
    outer = {
        "tok_embeddings.weight": (VOCABULARY, WIDTH),
        "pos_embeddings.weight": (POSITIONS, WIDTH),
        "speaker_cond_pos.weight": (WIDTH, VOICE),
        "norm.weight": (WIDTH,),
        "output.weight": (VOCABULARY, WIDTH),
    }
    return weights(outer | layer)


def second_weights():
    layer = {}
    for i in range(LAYERS):
        name = f"transformer.h.{i}."
        layer |= {
            f"{name}ln_1.weight": (WIDTH,),
            f"{name}attn.c_attn.weight": (3 * WIDTH, WIDTH),
            f"{name}attn.c_proj.weight": (WIDTH, WIDTH),
            f"{name}ln_2.weight": (WIDTH,),
            f"{name}mlp.c_fc.weight": (4 * WIDTH, WIDTH),
            f"{name}mlp.c_proj.weight": (WIDTH, 4 * WIDTH),
        }
    outer = {
        "transformer.wpe.weight": (POSITIONS, WIDTH),
        "transformer.ln_f.weight": (WIDTH,),
        "speaker_cond_pos.weight": (WIDTH, VOICE),
    }
    outer |= {f"transformer.wtes.{i}.weight": (size, WIDTH) for i, size in enumerate(KNOWN)}
    outer |= {f"lm_heads.{i}.weight": (size, WIDTH) for i, size in enumerate(FILLED)}
    return weights(outer | layer)


def attention(x, fused, heads, kv_heads, *, causal):
    batch, length, _ = x.shape
    pieces = (x @ fused.T).split([heads * SIZE, kv_heads * SIZE, kv_heads * SIZE], -1)
    q, k, v = (piece.view(batch, length, -1, SIZE).transpose(1, 2) for piece in pieces)
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)
    return y.transpose(1, 2).reshape(batch, length, -1)


def first_stage(state):
    def norm(x, name):
        return functional.rms_norm(x, (WIDTH,), state[f"{name}.weight"], 1e-5)

    x = state["tok_embeddings.weight"][TOKENS] + state["pos_embeddings.weight"][: TOKENS.shape[1]]
    x = x + (torch.tensor(SPEAKER) @ state["speaker_cond_pos.weight"].T)[:, None]
    for i in range(LAYERS):
        name = f"layers.{i}"
        y = attention(
            norm(x, f"{name}.attention_norm"), state[f"{name}.attention.wqkv.weight"], HEADS, KV_HEADS, causal=True
        )
        x = x + y @ state[f"{name}.attention.wo.weight"].T
        y = norm(x, f"{name}.ffn_norm")
        gate, up = (y @ state[f"{name}.feed_forward.swiglu.{part}.weight"].T for part in ("w1", "w3"))
        x = x + (functional.silu(gate) * up) @ state[f"{name}.feed_forward.w2.weight"].T
    return norm(x, "norm") @ state["output.weight"].T


def second_stage(state):
    def norm(x, name):
        return functional.layer_norm(x, (WIDTH,), state[f"{name}.weight"], None, 1e-5)

    x = state["transformer.wpe.weight"] + sum(state[f"transformer.wtes.{i}.weight"][CODES[:, i]] for i in range(2))
    x = x + (torch.tensor(SPEAKER) @ state["speaker_cond_pos.weight"].T)[:, None]
    for i in range(LAYERS):
        name = f"transformer.h.{i}"
        y = attention(norm(x, f"{name}.ln_1"), state[f"{name}.attn.c_attn.weight"], HEADS, HEADS, causal=False)
        x = x + y @ state[f"{name}.attn.c_proj.weight"].T
        y = functional.gelu(norm(x, f"{name}.ln_2") @ state[f"{name}.mlp.c_fc.weight"].T)
        x = x + y @ state[f"{name}.mlp.c_proj.weight"].T
    x = norm(x, "transformer.ln_f")
    return {f"logits.{i}": x @ state[f"lm_heads.{i}.weight"].T for i in range(len(FILLED))}


STAGES = {
    "first": (FIRST, first_weights, lambda state: {"logits": first_stage(state)}, TOKENS),
    "second": (SECOND, second_weights, second_stage, CODES),
}


def saved(path, config, state):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    cc.save_file({name: tensor.numpy() for name, tensor in state.items()}, path / "model.safetensors")
    return path


def compare(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert np.abs(found[name] - value.numpy()).max() <= TOLERANCE * value.abs().max(), name


@pytest.mark.parametrize("stage", STAGES)
def test_stage(stage, tmp_path):
    config, made, reference, ids = STAGES[stage]
    state = made()
    folder, expected = saved(tmp_path / "stage", config, state), reference(state)
    compare(cc.models.load(folder, activations="f32")(ids, speaker_embedding=SPEAKER), expected)
    cc.convert(folder, tmp_path / "stage.gguf")
    compare(cc.models.load(tmp_path / "stage.gguf", activations="f32")(ids, speaker_embedding=SPEAKER), expected)


def test_names_of_the_checkpoint(tmp_path):
    """The authors' checkpoint has the names of nanoGPT."""
    theirs = (
        ("tok_embeddings", "transformer.wtes.0"), ("pos_embeddings", "transformer.wpe"), ("layers.", "transformer.h."),
        ("attention_norm", "ln_1"), ("ffn_norm", "ln_2"), ("attention.wqkv", "attn.c_attn"),
        ("attention.wo", "attn.c_proj"), ("feed_forward.w2", "mlp.c_proj"), ("feed_forward", "mlp"),
        ("output.", "lm_heads.0."),
    )  # fmt: skip
    state, renamed = first_weights(), {}
    for name, tensor in state.items():
        for old, new in theirs:
            name = name.replace(old, new)
        renamed["transformer.ln_f.weight" if name == "norm.weight" else name] = tensor
    assert "transformer.h.0.mlp.swiglu.w1.weight" in renamed
    folder = saved(tmp_path / "stage", {"model_type": "metavoice_first_stage", **FIRST}, renamed)
    found = cc.models.load(folder, activations="f32")(TOKENS, speaker_embedding=SPEAKER)
    compare(found, {"logits": first_stage(state)})


def test_second_stage_exported(tmp_path):
    state = second_weights()
    cc.convert(saved(tmp_path / "stage", SECOND, state), tmp_path / "stage.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "stage.onnx")
    found = session.run(None, {"input_ids": CODES, "speaker_embedding": SPEAKER})
    compare(dict(zip((value.name for value in session.get_outputs()), found, strict=True)), second_stage(state))


@pytest.mark.parametrize(
    "changes", [{"causal": True}, {"vocab_sizes": [40]}, {"vocab_sizes": [41, 31]}, {"block_size": 10**9}]
)
def test_hostile_configurations(changes, tmp_path):
    folder = saved(tmp_path / "stage", SECOND | changes, second_weights())
    with pytest.raises(FormatError) as caught:
        cc.models.load(folder)
    assert "\n" not in str(caught.value)
