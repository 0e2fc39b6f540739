"""Texts put into classes by what the last token sees, in every family that transformers has such models of."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.oracles.transformers import cases, expected, made

LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
}
FAMILIES = {
    "Llama": ("llama", {}),
    "Mistral": ("mistral", {"sliding_window": 8}),
    "Mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen2": ("qwen2", {}),
    "Qwen3": ("qwen3", {"head_dim": 16}),
    "Qwen2Moe": ("qwen2_moe", EXPERTS),
    "Gemma": ("gemma", {"head_dim": 16}),
    "Gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16}),
    "Gemma3Text": ("gemma3_text", {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16}),
    "Phi": ("phi", {"partial_rotary_factor": 0.5}),
    "Phi3": ("phi3", {}),
    "GPT2": ("gpt2", {"n_positions": 64}),
    "GPTBigCode": ("gpt_bigcode", {"n_positions": 64, "n_inner": 96}),
    "Falcon": ("falcon", {"num_kv_heads": None}),
    "StableLm": ("stablelm", {}),
    "Starcoder2": ("starcoder2", {"use_bias": True}),
    "Olmo2": ("olmo2", {}),
    "SmolLM3": ("smollm3", {"no_rope_layers": [1, 0]}),
    "Glm": ("glm", {"head_dim": 16}),
    "GPTJ": ("gptj", {"rotary_dim": 8}),
    "OPT": ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    "Bloom": ("bloom", {}),
    "Phimoe": ("phimoe", {"num_local_experts": 4}),
    "Helium": ("helium", {"head_dim": 16}),
    "Nemotron": ("nemotron", {}),
    "Persimmon": ("persimmon", {}),
    "Exaone4": ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "HunYuanDenseV1": ("hunyuan_v1_dense", {"head_dim": 16}),
    "Mpt": ("mpt", {"d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
}
CASES = [case for name, (kind, config) in FAMILIES.items() for case in cases(
    f"{name}ForSequenceClassification", kind, **{name: {"num_hidden_layers": 2, **config, **LABELS}})]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_as_transformers(case, tmp_path):
    reference = made(case, 0, tmp_path)
    rng = np.random.default_rng(0)
    ids = rng.integers(3, reference.config.vocab_size, (3, 11))
    left = np.arange(11) >= np.array([[0], [3], [6]])
    model = models.load(tmp_path, threads=1)
    for mask in (left, left[:, ::-1].copy()):
        given = np.where(mask, ids, 0)
        want = expected(reference, given, mask.astype(np.int64))
        got = model.logits(given, mask)
        assert got.shape == want.shape == (3, 3)
        assert np.abs(got - want).max() <= case.tolerance * np.abs(want).max()
    last = ids[:1].copy()
    last[0, 8:] = 0  # the padding token ends a text without a mask too
    want = expected(reference, last, None)
    assert np.abs(model.logits(last) - want).max() <= case.tolerance * np.abs(want).max()


HEADS = {
    "LlamaForTokenClassification": ("llama", {}),
    "LlamaForQuestionAnswering": ("llama", {}),
    "GemmaForTokenClassification": ("gemma", {"head_dim": 16, "tie_word_embeddings": True}),
    "GPT2ForTokenClassification": ("gpt2", {"n_positions": 64}),
    "FalconForQuestionAnswering": ("falcon", {"num_kv_heads": None}),
}


@pytest.mark.parametrize("cls", HEADS)
def test_heads_that_decoders_lack_are_named(cls, tmp_path):
    """The error is about the task, not about the weights of its head, which nobody should leave out."""
    kind, config = HEADS[cls]
    made(cases(cls, kind, head={"num_hidden_layers": 2, **config})[0], 0, tmp_path)
    task = "token-classification" if "Token" in cls else "question-answering"
    with pytest.raises(cc.UnsupportedError, match=rf"E-ARCH-TASK.* models are not supported for {task}"):
        models.load(tmp_path)
    with pytest.raises(cc.Error, match=rf"E-OUT-ARCH.* models are not supported for {task}"):
        cc.convert(tmp_path, tmp_path / "model.gguf")


def test_head_for_tokens_is_not_needed_and_the_classifier_is(tmp_path):
    case = next(case for case in CASES if case.name == "Phi")
    made(case, 0, tmp_path)
    graph = cc.open(tmp_path)
    del graph.weights["score.weight"]
    with pytest.raises(cc.FormatError, match=r"E-ARCH-MISSING.*missing 1 weight .*score\.weight"):
        models.load(graph)


def test_classifier_of_another_width_is_refused(tmp_path):
    made(CASES[0], 0, tmp_path)
    graph = cc.open(tmp_path)
    graph.weights["score.weight"] = cc.StoredTensor.of(np.zeros((3, 60), np.float32))
    with pytest.raises(cc.FormatError, match="E-ARCH-SHAPE"):
        models.load(graph)


def test_gguf_says_nothing_of_classes(tmp_path):
    made(CASES[0], 0, tmp_path)
    with pytest.raises(cc.UnsupportedError, match="E-OUT-ARCH"):
        cc.convert(tmp_path, tmp_path / "out.gguf")
    report = cc.convert(tmp_path, tmp_path / "out.gguf", weights_only=True)
    assert "score.weight" in cc.open(tmp_path / "out.gguf").weights
    assert any(note.code == "W-ARCH" for note in report.notes)
