"""NV-Embed in its hub layout, against transformers' Mistral without a causal mask and the published attention to
latents, written in torch."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.trained_tokenizers import library_json
from candle_convert.tests.oracles.transformers import cases, difference, made, transformers
from safetensors.torch import load_file, save_file

torch = pytest.importorskip("torch")
functional = torch.nn.functional

END = "<|im_end|>"
HIDDEN, LATENTS, HEADS, SIZE = 64, 12, 2, 24
BLOCKS = "latent_attention_model.cross_attend_blocks"
CONFIG = {"num_latents_value": LATENTS, "num_cross_heads": HEADS, "cross_dim_head": SIZE, "latent_dim": HIDDEN,
          "hidden_dim": HIDDEN, "output_normalize": True}  # fmt: skip
SHAPES = {
    "latent_attention_model.latents": (LATENTS, HIDDEN),
    f"{BLOCKS}.0.fn.to_q.weight": (HEADS * SIZE, HIDDEN),
    f"{BLOCKS}.0.fn.to_kv.weight": (2 * HEADS * SIZE, HIDDEN),
    f"{BLOCKS}.0.fn.to_out.weight": (HIDDEN, HEADS * SIZE),
    f"{BLOCKS}.1.fn.net.0.weight": (8 * HIDDEN, HIDDEN),
    f"{BLOCKS}.1.fn.net.0.bias": (8 * HIDDEN,),
    f"{BLOCKS}.1.fn.net.2.weight": (HIDDEN, 4 * HIDDEN),
    f"{BLOCKS}.1.fn.net.2.bias": (HIDDEN,),
    **{f"{BLOCKS}.{norm}.{kind}": (HIDDEN,) for norm in ("0.norm", "0.norm_context", "1.norm")
       for kind in ("weight", "bias")},
}  # fmt: skip


def normed(x, weights, name):
    return functional.layer_norm(x, (HIDDEN,), weights[f"{BLOCKS}.{name}.weight"], weights[f"{BLOCKS}.{name}.bias"])


def after_latents(hidden, weights):
    """Hidden states [batch, length, hidden] after `LatentAttentionModel`, before the mean."""

    def heads(x):
        return x.unflatten(-1, (HEADS, SIZE)).transpose(1, 2)

    context = normed(weights["latent_attention_model.latents"], weights, "0.norm_context").expand(len(hidden), -1, -1)
    queries = normed(hidden, weights, "0.norm") @ weights[f"{BLOCKS}.0.fn.to_q.weight"].T
    keys, values = (context @ weights[f"{BLOCKS}.0.fn.to_kv.weight"].T).chunk(2, -1)
    y = functional.scaled_dot_product_attention(*map(heads, (queries, keys, values))).transpose(1, 2).flatten(-2)
    x = hidden + y @ weights[f"{BLOCKS}.0.fn.to_out.weight"].T
    first, second = ((weights[f"{BLOCKS}.1.fn.net.{i}.weight"], weights[f"{BLOCKS}.1.fn.net.{i}.bias"]) for i in (0, 2))
    y, gates = functional.linear(normed(x, weights, "1.norm"), *first).chunk(2, -1)
    return x + functional.linear(y * functional.gelu(gates), *second)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder of a checkpoint, its Mistral in transformers and the further weights."""
    folder = tmp_path_factory.mktemp("nv_embed")
    tokenizer = library_json()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    count = max(tokenizer["model"]["vocab"].values()) + 1
    (case,) = cases("MistralModel", "mistral", MistralModel={"head_dim": 16, "sliding_window": None})
    reference = made(type(case)(**{**vars(case), "base": {**case.base, "vocab_size": count}}), 0, folder)
    generator = torch.Generator().manual_seed(0)
    extra = {name: torch.randn(shape, generator=generator) * shape[-1] ** -0.5 for name, shape in SHAPES.items()}
    whole = {f"embedding_model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(whole | extra, folder / "model.safetensors")
    text = json.loads((folder / "config.json").read_text()) | {"model_type": "bidir_mistral"}
    config = {"architectures": ["NVEmbedModel"], "model_type": "nvembed", "hidden_size": HIDDEN, "text_config": text,
              "latent_attention_config": {"model_type": "latent_attention", **CONFIG}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder, reference, extra


@pytest.mark.parametrize("exported", [False, True])
def test_vectors_of_texts(pair, exported, tmp_path):
    folder, reference, extra = pair
    if exported:
        cc.convert(folder, tmp_path / "onnx", to="onnx")
    model = models.load(tmp_path / "onnx" if exported else folder, threads=1)
    assert model.task == "feature-extraction"
    ids = np.random.default_rng(0).integers(3, reference.config.vocab_size, (3, 11))
    mask = (np.arange(11) < [[11], [8], [5]]).astype(np.int64)
    hidden_keys = torch.zeros(3, 1, 11, 11).masked_fill(torch.tensor(mask)[:, None, None] == 0, -torch.inf)
    with torch.no_grad():
        found = reference(input_ids=torch.tensor(ids), attention_mask=hidden_keys).last_hidden_state
        want = after_latents(found, extra) * torch.tensor(mask)[..., None]
    got = model(input_ids=ids, attention_mask=mask)["last_hidden_state"] * mask[..., None]
    assert difference(got, want.numpy()) <= 3e-5
    vectors = functional.normalize(want.sum(1) / torch.tensor(mask).sum(1, keepdim=True), dim=-1)
    texts = [row[:count].tolist() for row, count in zip(ids, mask.sum(1), strict=True)]
    np.testing.assert_allclose(model.embed(texts), vectors.numpy(), rtol=0, atol=3e-5)


def test_a_prompt_is_not_averaged(pair):
    folder, reference, extra = pair
    model = models.load(folder, threads=1)
    prompt, text = "Given a question, find an answer: ", "the object is a class"
    tokenizer = transformers().AutoTokenizer.from_pretrained(folder)
    ids, skipped = tokenizer(prompt + text + END)["input_ids"], len(tokenizer(prompt)["input_ids"])
    assert ids[-1] == tokenizer.eos_token_id
    with torch.no_grad():
        whole = torch.zeros(1, 1, len(ids), len(ids))
        found = reference(input_ids=torch.tensor([ids]), attention_mask=whole).last_hidden_state
        want = functional.normalize(after_latents(found, extra)[0, skipped:].mean(0), dim=-1).numpy()
    np.testing.assert_allclose(model.embed(text, prompt=prompt), want, rtol=0, atol=3e-5)
