"""config.json as transformers 5 saves it: every configuration of text models, and every RoPE scaling of every
architecture, for all layers or for each kind of layer, as saved and as older files state it."""

import json
from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.builders.encoder_cases import ENCODERS
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS
from candle_convert.tests.builders.encoder_decoder_cases import inputs as both_texts
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.oracles.transformers import difference, made

torch = pytest.importorskip("torch")

GENERATING = (*DECODERS, *WITHOUT_GGUF, *RECURRENT)
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.3},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}
LENGTH = 40
CONTEXT = 24
"""Shorter than the texts, so that dynamic scaling shows."""
WITHOUT_ROPE = (
    "bloom", "falcon_mamba", "gpt2", "gpt_bigcode", "gptj", "jamba", "mamba", "mamba2", "mpt", "opt",
    "granitemoehybrid", "bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert", "mpnet", "deberta-v2",
    "clip_text_model", "siglip_text_model",
)  # fmt: skip
DEFAULT_ONLY = ("gemma4_text", "recurrent_gemma", "qwen3_5_text", "hunyuan_v1_dense", "phi3", "phimoe", "ministral3")
"""Models whose RoPE transformers does not scale in these ways, or that state the scaling under keys of their own."""
STATED_HEADS = {"mixtral": {"head_dim": 16}}
"""Without it transformers scales no RoPE of these models: it computes with a size of heads that is None."""
BASES = {"gpt_neox": "rotary_emb_base", "modernbert": "global_rope_theta"}
"""How older files of a model call the base."""
TWO_KINDS = ("olmo3", "gemma3_text", "gemma3n_text", "modernbert")
"""Models whose layers with a window have RoPE parameters of their own."""


def first_of_each(cases):
    """The first case of every model type whose RoPE can be scaled and is stated by no case as it is."""
    found = {}
    for case in cases:
        kind = case.config["model_type"]
        if kind not in (*WITHOUT_ROPE, *DEFAULT_ONLY) and not case.name.endswith(("Classification", "MaskedLM")):
            plain = {k: v for k, v in case.config.items() if k not in ("rope_scaling", "rope_parameters")}
            found.setdefault(kind, replace(case, config=plain))
    return list(found.values())


def first_output(case, model, ids):
    """Name and values of the first output of transformers."""
    with torch.no_grad():
        found = model(input_ids=torch.tensor(ids), **({"use_cache": False} if case in GENERATING else {}))
    name, value = next(iter(found.items()))
    return name, value.numpy()


def check(case, folder, saved):
    reference = made(case, 0, folder, saved)
    ids = np.random.default_rng(0).integers(3, reference.config.vocab_size, (1, LENGTH))
    model, (name, want) = models.load(folder, threads=1), first_output(case, reference, ids)
    got = model.logits(ids) if hasattr(model, "logits") else model(input_ids=ids)[name]
    assert difference(got, want) <= case.tolerance


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", [*GENERATING, *ENCODERS], ids=lambda case: case.name)
def test_as_transformers_5_saves_it(case, tmp_path):
    check(case, tmp_path, saved=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", ENCODER_DECODERS, ids=lambda case: case.name)
def test_encoder_decoders_as_transformers_5_saves_them(case, tmp_path):
    reference = made(case, 0, tmp_path, saved=True)
    arrays = both_texts(case, 0)["single"]
    with torch.no_grad():
        want = reference(**{name: torch.tensor(array) for name, array in arrays.items()}, use_cache=False).logits
    assert difference(models.load(tmp_path, threads=1)(**arrays)["logits"], want.numpy()) <= case.tolerance


@pytest.mark.sampled(31)
@pytest.mark.parametrize("saved", [False, True], ids=["older", "saved"])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("case", first_of_each((*GENERATING, *ENCODERS)), ids=lambda case: case.config["model_type"])
def test_rope_scaling_of_all_layers(case, scaling, saved, tmp_path):
    stated = {"rope_scaling": SCALINGS[scaling], BASES.get(case.config["model_type"], "rope_theta"): 5000.0}
    stated |= {"max_position_embeddings": CONTEXT, **STATED_HEADS.get(case.config["model_type"], {})}
    check(replace(case, config={**case.config, **stated}), tmp_path, saved)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scaling", [None, *SCALINGS])
@pytest.mark.parametrize(
    "case",
    [case for case in first_of_each((*GENERATING, *ENCODERS)) if case.config["model_type"] in TWO_KINDS],
    ids=lambda case: case.config["model_type"],
)
def test_rope_parameters_of_each_kind_of_layer(case, scaling, tmp_path):
    """Both kinds have a base and a scaling of their own: the file cannot be read with those of either alone."""
    scaled = SCALINGS.get(scaling, {"rope_type": "default"})
    parameters = {
        "full_attention": {**scaled, "rope_theta": 5000.0},
        "sliding_attention": {**({} if scaling is None else SCALINGS["linear"]), "rope_theta": 300.0},
    }
    stated = {key: value for key, value in case.config.items() if key not in ("rope_theta", "rope_local_base_freq")} | {
        "rope_parameters": parameters,
        "max_position_embeddings": CONTEXT,
    }
    check(replace(case, config=stated), tmp_path, saved=True)
    saved = json.loads((tmp_path / "config.json").read_text())["rope_parameters"]
    assert saved["sliding_attention"]["rope_theta"] == 300.0


ORIGINAL = "original_max_position_embeddings"
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + i / 8 for i in range(8)],
    "long_factor": [2.0 + i / 2 for i in range(8)],
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("saved", [False, True], ids=["older", "saved"])
@pytest.mark.parametrize(("outer", "inner"), [(None, None), (None, 16), (16, None), (16, 32), (32, 16)])
@pytest.mark.parametrize("scaling", ["yarn", "llama3", "longrope"])
@pytest.mark.parametrize("kind", ["llama", "olmo3", "gemma3_text", "phi3"])
def test_the_original_context_length_is_the_one_that_transformers_takes(kind, scaling, outer, inner, saved, tmp_path):
    """Of a top-level key, the parameters of RoPE, and the model's own length."""
    if kind == "phi3" and scaling != "longrope":
        pytest.skip("Phi 3 has no other scaling")
    case = next(case for case in GENERATING if case.config["model_type"] == kind)
    stated = {key: value for key, value in {**SCALINGS, "longrope": LONGROPE}[scaling].items() if key != ORIGINAL}
    config = {**case.config, "max_position_embeddings": CONTEXT, "head_dim": 16}
    config |= {"rope_scaling": stated | ({ORIGINAL: inner} if inner else {})} | ({ORIGINAL: outer} if outer else {})
    check(replace(case, config=config), tmp_path, saved)


@pytest.mark.parametrize("scaling", ["linear", "yarn"])
def test_parameters_of_each_kind_of_layer_from_gguf_files(scaling, tmp_path):
    """A config.json that is made of a GGUF file states both kinds of layer as transformers reads them."""
    case = next(case for case in first_of_each(GENERATING) if case.config["model_type"] == "olmo3")
    full, sliding = {"rope_theta": 3000.0, **SCALINGS[scaling]}, {"rope_theta": 3000.0, "rope_type": "default"}
    stated = {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}
    reference = made(replace(case, config={**case.config, **stated}), 0, tmp_path / "model")
    ids = np.random.default_rng(0).integers(3, 96, (1, LENGTH))
    cc.convert(tmp_path / "model", tmp_path / "model.gguf")
    cc.convert(tmp_path / "model.gguf", tmp_path / "back", to="safetensors")
    again = type(reference).from_pretrained(tmp_path / "back", attn_implementation="eager").eval()
    (_, got), (_, want) = first_output(case, again, ids), first_output(case, reference, ids)
    assert difference(got, want) <= case.tolerance
