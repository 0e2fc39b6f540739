"""Perplexity and divergence of tiny models, against transformers' logits; texts and vocabularies that do not fit."""

import json
import math

import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.trained_tokenizers import byte_bpe, corpus
from candle_convert.tests.oracles.transformers import BASE, Case, made

CONTEXT, PIECES = 64, 3
CASE = Case(
    "llama",
    "LlamaForCausalLM",
    {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    base={**BASE, "vocab_size": 700},
)
OTHER = Case(
    "qwen2",
    "Qwen2ForCausalLM",
    {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    base={**BASE, "vocab_size": 700},
)
SMALL = Case("small", "LlamaForCausalLM", {"architectures": ["LlamaForCausalLM"], "model_type": "llama"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models with one tokenizer, one with a smaller vocabulary, and a text."""
    folder = tmp_path_factory.mktemp("perplexity")
    (folder / "text.txt").write_text("\n".join(corpus()[:60]) + "\n")
    return folder


@pytest.fixture(scope="module")
def models(folder):
    found = {}
    for case in (CASE, OTHER, SMALL):
        found[case.name] = made(case, 3, folder / case.name)
        byte_bpe(()).save(str(folder / case.name / "tokenizer.json"))
    return found


def scored(model, folder):
    """Logarithms of probabilities for the second half of each piece, and what follows."""
    import torch

    ids = byte_bpe(()).encode((folder / "text.txt").read_text().removesuffix("\n"), add_special_tokens=False).ids
    pieces = torch.tensor(ids[: CONTEXT * PIECES]).reshape(PIECES, CONTEXT)
    with torch.no_grad():
        logits = model(pieces).logits.double()[:, CONTEXT // 2 : -1]
    return torch.log_softmax(logits, -1).numpy().reshape(-1, logits.shape[-1]), pieces[
        :, CONTEXT // 2 + 1 :
    ].numpy().reshape(-1)


def evaluated(capsys, folder, model, *arguments):
    pieces = ["--data", str(folder / "text.txt"), "--context", str(CONTEXT), "--chunks", str(PIECES)]
    assert run(["eval", str(folder / model), *pieces, *arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    return said, {each["metric"]: each for each in said["metrics"]}


def test_perplexity(folder, models, capsys):
    predicted, targets = scored(models["llama"], folder)
    losses = -predicted[np.arange(len(targets)), targets]
    said, found = evaluated(capsys, folder, "llama", "--metric", "ppl")
    assert said["tokens"] == len(losses)
    assert found["ppl"]["value"] == pytest.approx(math.exp(losses.mean()), rel=1e-4)
    assert found["ppl"]["error"] == pytest.approx(
        math.exp(losses.mean()) * losses.std() / math.sqrt(len(losses) - 1), rel=1e-3
    )


def test_divergence(folder, models, capsys):
    (ours, targets), (theirs, _) = scored(models["llama"], folder), scored(models["qwen2"], folder)
    rows = np.arange(len(targets))
    divergences = (np.exp(theirs) * (theirs - ours)).sum(1)
    shifts = np.exp(ours[rows, targets]) - np.exp(theirs[rows, targets])
    _, found = evaluated(capsys, folder, "llama", "--metric", "kld", "--against", str(folder / "qwen2"))
    expected = {
        "kld": divergences.mean(),
        "kld, 99 %": np.percentile(divergences, 99),
        "kld, largest": divergences.max(),
        "same top token, %": 100 * (ours.argmax(1) == theirs.argmax(1)).mean(),
        "probability shift, rms %": 100 * np.sqrt((shifts**2).mean()),
        "ln(ppl / ppl of the other)": (theirs - ours)[rows, targets].mean(),
    }
    for name, value in expected.items():
        assert found[name]["value"] == pytest.approx(value, rel=1e-3, abs=1e-6), name


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["--metric", "kld"], "E-OPTION", 2),
        (["--metric", "ppl", "--metric", "top1"], "E-OPTION", 2),
        (["--metric", "ppl", "--context", "9000"], "E-EVAL-TEXT", 2),
        (["--metric", "ppl", "--context", "2"], "E-EVAL-CONTEXT", 2),
        (["--metric", "kld", "--context", "64", "--against", "small"], "E-EVAL-VOCABULARY", 2),
    ],
)
def test_what_does_not_fit_is_refused(folder, models, capsys, arguments, code, exit_code):
    arguments = [str(folder / one) if one == "small" else one for one in arguments]
    assert run(["eval", str(folder / "llama"), "--data", str(folder / "text.txt"), *arguments]) == exit_code
    assert code in capsys.readouterr().err


def test_a_text_that_is_none_is_refused(folder, models, capsys):
    (folder / "bytes").write_bytes(b"abc\xff")
    assert run(["eval", str(folder / "llama"), "--data", str(folder / "bytes"), "--metric", "ppl"]) == 3
    assert "E-EVAL-UTF8" in capsys.readouterr().err
    assert run(["eval", str(folder / "llama"), "--data", str(folder / "missing"), "--metric", "ppl"]) == 7


@pytest.mark.parametrize("metrics", [(), ("--metric", "top1")])
def test_the_metric_of_language_models_is_named(folder, models, capsys, metrics):
    assert run(["eval", str(folder / "llama"), "-d", str(folder / "text.txt"), *metrics]) == 2
    error = capsys.readouterr().err
    assert "is a language model" in error
    assert error.rstrip().endswith("--metric ppl")
