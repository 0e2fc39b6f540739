"""Heads that are the embedding, and those that are not: transformers' settings decide, in every family."""

import json
from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.runtime.contract.architecture import TEXT_GENERATION
from candle_convert.runtime.contract.weight_binding import architectures
from candle_convert.tests.builders.decoder_cases import DECODERS, WITHOUT_GGUF
from candle_convert.tests.builders.encoder_cases import ENCODERS
from candle_convert.tests.builders.encoder_cases import inputs as encoder_inputs
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS
from candle_convert.tests.builders.encoder_decoder_cases import inputs as text_inputs
from candle_convert.tests.builders.recurrent_cases import RECURRENT
from candle_convert.tests.builders.speech_checkpoints import MOONSHINE, SECONDS, WHISPERS, tones, whisper
from candle_convert.tests.oracles.transformers import difference, made, stored_ties, transformers

TIED = "tie_word_embeddings"
HEAD_NAMES = ("lm_head.weight", "embed_out.weight")


def one_of_each():
    """A decoder of every architecture that transformers has."""
    known = {architecture.name: architecture.model_types for architecture in architectures()
             if architecture.tasks and architecture.tasks[0].name == TEXT_GENERATION}  # fmt: skip
    cases = {}
    for case in (*DECODERS, *RECURRENT, *WITHOUT_GGUF):
        name = next((name for name, kinds in known.items() if case.config["model_type"] in kinds), None)
        if name is not None:
            cases.setdefault(name, case)
    return list(cases.values())


def without(folder, dropped):
    """Rewrite the checkpoint in a folder without some tensors; the names of those that it had."""
    weights = {name: tensor.numpy() for name, tensor in cc.open(folder).weights.items()}
    found = [name for name in weights if name in dropped]
    cc.save_file({name: array for name, array in weights.items() if name not in found}, folder / "model.safetensors")
    return found


def missing(cls, folder):
    """The weights that transformers draws at random."""
    _, said = getattr(transformers(), cls).from_pretrained(folder, output_loading_info=True)
    return sorted(said["missing_keys"])


def stating(folder, **keys):
    """Change keys of a config.json; None deletes one."""
    path = folder / "config.json"
    stated = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({key: value for key, value in stated.items() if keys.get(key, 0) is not None}))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", one_of_each(), ids=lambda case: case.config["model_type"])
def test_a_missing_head_that_is_not_tied_is_refused(case, tmp_path):
    folder = tmp_path / "model"
    made(replace(case, config={**case.config, TIED: False}), 0, folder)
    (name,) = without(folder, HEAD_NAMES)
    assert missing(case.cls, folder) == ["lm_head.weight"]
    match = rf"E-ARCH-MISSING.*missing {name}"
    with pytest.raises(cc.FormatError, match=match):
        models.load(folder)
    with pytest.raises(cc.FormatError, match=match):
        cc.convert(folder, tmp_path / "onnx", to="onnx")
    kind = case.config["model_type"]
    if any(kind in each.model_types and each.gguf for each in architectures()):
        with pytest.raises(cc.Error) as caught:  # some settings are refused before
            cc.convert(folder, tmp_path / "model.gguf")
        assert caught.value.code in ("E-ARCH-MISSING", "E-OUT-ARCH", "E-GGUF-SETTING"), str(caught.value)
        assert not (tmp_path / "model.gguf").exists()
    states = models.load(folder, task="feature-extraction")
    assert np.isfinite(states.logits(np.arange(3, 9)[None])).all()
    stating(folder, **{TIED: True})
    reference = getattr(transformers(), case.cls).from_pretrained(folder).eval()
    import torch

    ids = np.arange(3, 20)[None]
    with torch.no_grad():
        want = reference(torch.tensor(ids), use_cache=False).logits.numpy()
    assert difference(models.load(folder, threads=1).logits(ids), want) <= max(case.tolerance, 3e-5)


@pytest.mark.parametrize("default", [True, False])
def test_the_default_of_the_family_decides(default, tmp_path):
    """Gemma's heads are tied by default, Llama's are not."""
    kind = "gemma" if default else "llama"
    case = next(case for case in one_of_each() if case.config["model_type"] == kind)
    made(replace(case, config={**case.config, TIED: False}), 0, tmp_path)
    without(tmp_path, HEAD_NAMES)
    stating(tmp_path, **{TIED: None})
    assert bool(missing(case.cls, tmp_path)) != default
    if default:
        models.load(tmp_path)
    else:
        with pytest.raises(cc.FormatError, match=r"missing lm_head\.weight"):
            models.load(tmp_path)


def test_a_gguf_file_without_a_head_is_tied(tmp_path):
    case = next(case for case in DECODERS if case.config["model_type"] == "llama")
    made(replace(case, config={**case.config, TIED: True}), 0, tmp_path / "model")
    cc.convert(tmp_path / "model", tmp_path / "model.gguf", metadata={"tokenizer.ggml.model": "no_vocab"})
    assert "output.weight" not in cc.open(tmp_path / "model.gguf").weights
    models.load(tmp_path / "model.gguf")
    cc.convert(tmp_path / "model.gguf", tmp_path / "back", to="safetensors")
    models.load(tmp_path / "back")


def test_embeddings_of_a_headless_checkpoint_reach_gguf(tmp_path):
    """As Qwen3-Embedding's, which states the class of a language model and has no head."""
    case = next(case for case in DECODERS if case.config["model_type"] == "qwen3")
    folder = tmp_path / "model"
    made(replace(case, config={**case.config, TIED: False}), 0, folder)
    without(folder, HEAD_NAMES)
    pooling = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(pooling))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 64, "pooling_mode_lasttoken": True})
    )
    models.load(folder)
    cc.convert(folder, tmp_path / "model.gguf", metadata={"tokenizer.ggml.model": "no_vocab"})
    assert models.load(tmp_path / "model.gguf").task == "feature-extraction"


MASKED = [case for case in ENCODERS if case.name.endswith("ForMaskedLM")]


@pytest.mark.parametrize("case", MASKED, ids=lambda case: case.name)
def test_masked_tokens_by_a_head_of_its_own(case, tmp_path):
    import torch

    untied = replace(case, config={**case.config, TIED: False})
    reference = made(untied, 0, tmp_path)
    arrays = encoder_inputs(case, 0)["single"]
    with torch.no_grad():
        want = reference(**{name: torch.tensor(array) for name, array in arrays.items()}).logits.numpy()
    assert difference(models.load(tmp_path, threads=1)(**arrays)["logits"], want) <= case.tolerance
    head = reference.get_output_embeddings()
    names = [name for name, module in reference.named_modules() if module is head]
    if not without(tmp_path, [f"{name}.weight" for name in names]):
        return  # the class always has the embedding
    assert missing(case.cls, tmp_path)
    with pytest.raises(cc.FormatError, match=rf"E-ARCH-MISSING.*missing {names[0]}\.weight"):
        models.load(tmp_path)


@pytest.mark.parametrize("case", ENCODER_DECODERS, ids=lambda case: case.name)
def test_encoder_decoders_with_separate_embeddings(case, tmp_path):
    """Those of the encoder, of the decoder and of the head, which files have where they are not tied; T5's are tied
    by transformers where they are the same."""
    import torch

    made(replace(case, config={**case.config, TIED: False}), 0, tmp_path)
    weights = {name: tensor.numpy() for name, tensor in cc.open(tmp_path).weights.items()}
    prefix, shared = ("", "shared.weight") if "shared.weight" in weights else ("model.", "model.shared.weight")
    rng = np.random.default_rng(0)
    for name in (f"{prefix}encoder.embed_tokens.weight", f"{prefix}decoder.embed_tokens.weight", "lm_head.weight"):
        if shared in weights:
            weights[name] = (rng.standard_normal(weights[shared].shape) * 0.5).astype(np.float32)
    cc.save_file(weights, tmp_path / "model.safetensors")
    reference = getattr(transformers(), case.cls).from_pretrained(tmp_path).eval()
    arrays = text_inputs(case, 0)["single"]
    with torch.no_grad():
        want = reference(**{name: torch.tensor(array) for name, array in arrays.items()}, use_cache=False).logits
    assert difference(models.load(tmp_path, threads=1)(**arrays)["logits"], want.numpy()) <= case.tolerance


def speech_inputs(case):
    """Two recordings, as features or samples, and the first tokens of their texts."""
    ids = np.random.default_rng(1).integers(3, 250, (2, 7))
    if case is MOONSHINE:
        return {"input_values": np.stack([tones(0.5), tones(0.5, 1)]), "decoder_input_ids": ids}
    shape = (2, case.config.get("num_mel_bins", 80), 100 * SECONDS)
    return {"input_features": np.random.default_rng(0).standard_normal(shape, np.float32), "decoder_input_ids": ids}


def with_inputs():
    """Cases of models whose weights are tied, and functions that make their inputs."""
    tied = [replace(case, config={**case.config, TIED: True}) for case in (*one_of_each(), *ENCODER_DECODERS)]
    for case in tied[: -len(ENCODER_DECODERS)]:
        yield pytest.param(case, lambda case: {"input_ids": np.arange(3, 20)[None]}, id=case.config["model_type"])
    for case in tied[-len(ENCODER_DECODERS) :]:
        yield pytest.param(case, lambda case: text_inputs(case, 0)["single"], id=case.name)
    for case in MASKED:
        yield pytest.param(case, lambda case: encoder_inputs(case, 0)["single"], id=case.name)
    for case in (*WHISPERS, MOONSHINE):
        yield pytest.param(case, speech_inputs, id=case.name)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("case", "inputs"), [*with_inputs()])
def test_stored_weights_differ_from_those_that_they_are_tied_to(case, inputs, tmp_path):
    """transformers computes with both, whatever config.json says."""
    import torch

    made(case, 0, tmp_path / "tied")
    reference, names = stored_ties(getattr(transformers(), case.cls), tmp_path / "tied", tmp_path / "model")
    assert names
    arrays = inputs(case)
    given = {} if case in MASKED else {"use_cache": False}
    with torch.no_grad():
        want = reference(**{name: torch.tensor(array) for name, array in arrays.items()}, **given).logits.numpy()
    model = models.load(tmp_path / "model", threads=1)
    alone = len(arrays) == 1 and case not in MASKED
    got = model.logits(arrays["input_ids"]) if alone else model(**arrays)["logits"]
    assert difference(got, want) <= case.tolerance


@pytest.mark.parametrize("case", [WHISPERS[0], MOONSHINE], ids=lambda case: case.name)
def test_speech_with_a_head_of_its_own(case, tmp_path):
    """config.json says so, GGUF files keep it, and a missing one is refused."""
    import torch

    folder = tmp_path / "model"
    build = made if case is MOONSHINE else whisper
    reference = build(replace(case, config={**case.config, TIED: False}), 0, folder)
    arrays = speech_inputs(case)
    with torch.no_grad():
        want = reference(**{name: torch.tensor(array) for name, array in arrays.items()}, use_cache=False)
    cc.convert(folder, tmp_path / "model.gguf", dtype="f32")
    cc.convert(tmp_path / "model.gguf", tmp_path / "back", to="safetensors")
    cc.convert(folder, tmp_path / "onnx", to="onnx", dtype="f32")
    for path in (folder, tmp_path / "model.gguf", tmp_path / "back", tmp_path / "onnx"):
        got = models.load(path, threads=1)(**arrays)["logits"]
        assert difference(got, want.logits.numpy()) <= case.tolerance, path
    assert not json.loads((tmp_path / "back/config.json").read_text())[TIED]
    assert missing(case.cls, tmp_path / "back") == []
    assert without(folder, ["proj_out.weight"])
    assert missing(case.cls, folder) == ["proj_out.weight"]
    with pytest.raises(cc.FormatError, match=r"E-ARCH-MISSING.*missing proj_out\.weight"):
        models.load(folder)
