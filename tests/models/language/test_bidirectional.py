"""Embedding models made from decoders, whose tokens attend to all others: `is_causal` is false in config.json."""

import json
from dataclasses import replace

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import models
from candle_convert.runtime.base.errors import FormatError
from candle_convert.tests.builders.decoder_cases import decoder
from candle_convert.tests.oracles.transformers import cases, made

torch = pytest.importorskip("torch")

FAMILIES = {"Llama": "llama", "Mistral": "mistral", "Qwen2": "qwen2", "Qwen3": "qwen3"}
PLAIN = {"num_hidden_layers": 2, "sliding_window": None}
CASES = [
    case for name, kind in FAMILIES.items() for case in cases(f"{name}Model", kind, **{name: {"head_dim": 16, **PLAIN}})
]


def bidirectional(case, folder, **changed):
    """A model of transformers, and its directory with a config.json that says that it is not causal."""
    reference = made(case, 0, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"is_causal": False} | changed))
    return reference


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_token_attends_to_all(case, tmp_path):
    reference = bidirectional(case, tmp_path / "hf")
    ids = np.random.default_rng(0).integers(3, reference.config.vocab_size, (3, 11))
    mask = (np.arange(11) < [[11], [8], [5]]).astype(np.int64)
    hidden_keys = torch.zeros(3, 1, 11, 11).masked_fill(torch.tensor(mask)[:, None, None] == 0, -torch.inf)
    with torch.no_grad():
        want = reference(input_ids=torch.tensor(ids), attention_mask=hidden_keys).last_hidden_state.numpy()
    want = want * mask[..., None]
    cc.convert(tmp_path / "hf", tmp_path / "model.gguf")
    for path in (tmp_path / "hf", tmp_path / "model.gguf"):
        got = models.load(path, threads=1)(input_ids=ids, attention_mask=mask)["last_hidden_state"] * mask[..., None]
        assert np.abs(got - want).max() <= case.tolerance * np.abs(want).max(), path.name


def test_sliding_windows_without_causality_are_refused(tmp_path):
    case = next(case for case in CASES if case.name.startswith("Mistral"))
    bidirectional(case, tmp_path, sliding_window=4)
    with pytest.raises(FormatError, match="E-ARCH-CAUSAL"):
        models.load(tmp_path, threads=1)


@pytest.mark.parametrize("window", [4, 5, 40])
def test_windows_of_gemma_3_reach_both_ways(window, tmp_path):
    """As EmbeddingGemma's do; transformers saves the half that reaches to each side, and halves it when it reads."""
    case = decoder("gemma3")
    config = {**case.config, "use_bidirectional_attention": True, "sliding_window": window}
    reference = made(replace(case, config=config), 0, tmp_path)
    assert reference.config.sliding_window == window // 2 + 1
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sliding_window": window}))
    ids = np.random.default_rng(0).integers(3, reference.config.vocab_size, (3, 21))
    mask = (np.arange(21) < [[21], [8], [15]]).astype(np.int64)
    with torch.no_grad():
        want = reference(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).logits.numpy()
    got = models.load(tmp_path, threads=1)(input_ids=ids, attention_mask=mask)["logits"]
    assert (np.abs(got - want) * mask[..., None]).max() <= case.tolerance * np.abs(want).max()
    with pytest.raises(cc.UnsupportedError, match="use_bidirectional_attention"):
        cc.convert(tmp_path, tmp_path / "model.gguf")
