"""Text from text with a T5 model and a Unigram tokenizer, against transformers' `generate`."""

import dataclasses
import json

import candle_convert as cc
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.encoder_decoder_cases import ENCODER_DECODERS, T5_SIZE, with_tokenizer
from candle_convert.tests.oracles.transformers import made, transformers

TEXTS = ["translate: the object is a class", "Hello  world", "a b c"]
OPTIONS = (
    {},
    {"num_beams": 4},
    {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True},
    {"min_length": 8, "no_repeat_ngram_size": 2},
)


def written(folder, languages=()):
    """A checkpoint with a tokenizer; the model as transformers reads it."""
    case = next(case for case in ENCODER_DECODERS if case.name == "mt5")
    reference = made(dataclasses.replace(case, base={**case.base, "vocab_size": T5_SIZE}), 0, folder)
    with_tokenizer(folder, languages)
    return reference


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder of a checkpoint, and the model and tokenizer as transformers reads them."""
    folder = tmp_path_factory.mktemp("t5")
    reference = written(folder)
    return folder, reference, transformers().AutoTokenizer.from_pretrained(folder)


def expected(pair, texts, count, **options):
    """What transformers makes of texts."""
    _, reference, tokenizer = pair
    ids = reference.generate(
        **tokenizer(texts, return_tensors="pt", padding=True), max_new_tokens=count, do_sample=False, **options
    )
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ", ".join(options) or "greedy")
def test_as_transformers(pair, options):
    model = models.load(pair[0], threads=1)
    made_ones = model.generate_batch(TEXTS, max_tokens=20, **options)
    assert [each.text for each in made_ones] == expected(pair, TEXTS, 20, **options)
    assert made_ones[0].prompt == pair[2](TEXTS[0])["input_ids"]


def test_settings_beside_the_weights(pair, tmp_path):
    for path in pair[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    stated = {"num_beams": 2, "length_penalty": 0.5, "forced_bos_token_id": 9, "forced_eos_token_id": 1,
              "max_length": 12, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}  # fmt: skip
    (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    model = models.load(tmp_path, threads=1)
    reference = transformers().AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    tokenizer = pair[2]
    ids = reference.generate(**tokenizer(TEXTS, return_tensors="pt", padding=True))
    assert [each.text for each in model.generate_batch(TEXTS)] == tokenizer.batch_decode(ids, skip_special_tokens=True)
    (tmp_path / "generation_config.json").write_text(json.dumps({**stated, "forced_bos_token_id": T5_SIZE}))
    with pytest.raises(cc.FormatError, match="forced_bos_token_id"):
        models.load(tmp_path, threads=1).generate("a")


def test_streams_text(pair):
    model = models.load(pair[0], threads=1)
    parts = list(model.generate(TEXTS[0], max_tokens=9, stream=True))
    assert len(parts) > 3
    assert "".join(parts) == model.generate(TEXTS[0], max_tokens=9) == expected(pair, TEXTS[:1], 9)[0]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"beem": 4}, "E-SAMPLE-OPTION"),
        ({"beams": 0}, "E-BEAMS"),
        ({"beams": 2, "num_beams": 3}, "E-SAMPLE-OPTION"),
        ({"beams": 2, "temperature": 0.5}, "E-BEAMS"),
        ({"target_lang": "de"}, "E-LANGUAGE"),
    ],
)
def test_wrong_options_are_refused(pair, options, code):
    with pytest.raises(cc.UsageError, match=code):
        models.load(pair[0], threads=1).generate("a", **options)


def test_a_tokenizer_that_does_not_fit_is_refused(pair, tmp_path):
    case = next(case for case in ENCODER_DECODERS if case.name == "mt5")
    made(case, 0, tmp_path)
    for name in ("spiece.model", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((pair[0] / name).read_bytes())
    with pytest.raises(cc.FormatError, match="E-LM-VOCABULARY"):
        models.load(tmp_path, threads=1).generate("a")


def test_languages(tmp_path):
    """MADLAD-400's tokens of languages stand before the text."""
    written(tmp_path, ["<2de>", "<2fr>"])
    model = models.load(tmp_path, threads=1)
    plain, chosen = (
        model.generate_batch(["a b"], max_tokens=1, **options)[0] for options in ({}, {"target_lang": "de"})
    )
    assert chosen.prompt == [model.tokenizer.id_of("<2de>"), *plain.prompt]
    with pytest.raises(cc.UsageError, match=r"no language 'en'.*de, fr"):
        model.generate("a b", target_lang="en")


def test_the_command(pair, capsys):
    words = ["generate", str(pair[0]), "-p", TEXTS[0], "-n", "20"]
    assert run([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["text"] == expected(pair, TEXTS[:1], 20)[0]
    assert run([*words, "--beams", "4"]) == 0
    assert capsys.readouterr().out.strip() == expected(pair, TEXTS[:1], 20, num_beams=4)[0].strip()
    assert run([*words, "--chat"]) == 2
    assert run([*words, "--target-lang", "xx"]) == 2
    assert "E-LANGUAGE" in capsys.readouterr().err
