"""Translation and summaries with BART and its relatives, tokenizers included, against transformers' `generate`."""

import dataclasses
import json

import candle_convert as cc
import pytest
from candle_convert import models
from candle_convert.convert.cli.main import run
from candle_convert.tests.builders.encoder_decoder_cases import BARTS
from candle_convert.tests.builders.trained_tokenizers import byte_bpe, sentencepiece
from candle_convert.tests.oracles.transformers import made, transformers

TEXTS = ["The object is a class of the module.", "Hello world", "a b c"]
UNIGRAM = {"kind": "unigram", "byte_fallback": False, "normalization_rule_name": "nmt_nfkc",
           "remove_extra_whitespaces": True}  # fmt: skip
CODES = {"mbart": 25, "mbart50": 52}


def pieces(model):
    import sentencepiece as spm

    library = spm.SentencePieceProcessor(model_proto=model)
    return [library.id_to_piece(token) for token in range(3, library.get_piece_size())]


def files_of(kind):
    """The files of a tokenizer, its size, and what generation_config.json states."""
    model = sentencepiece(**UNIGRAM)
    count = 3 + len(pieces(model))
    fairseq = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "forced_eos_token_id": 2}
    if kind == "marian":
        vocab = ["</s>", "<unk>", ">>fra<<", ">>deu<<", *pieces(model), "<pad>"]
        files = {"source.spm": model, "target.spm": model, "vocab.json": {text: n for n, text in enumerate(vocab)},
                 "tokenizer_config.json": {"tokenizer_class": "MarianTokenizer"}}  # fmt: skip
        pad = len(vocab) - 1
        stated = {"decoder_start_token_id": pad, "pad_token_id": pad, "bad_words_ids": [[pad]], "eos_token_id": 0,
                  "forced_eos_token_id": 0, "num_beams": 6}  # fmt: skip
        return files, len(vocab), stated
    if kind == "m2m_100":
        vocab = {text: n for n, text in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces(model)])}
        config = {"tokenizer_class": "M2M100Tokenizer", "src_lang": "en"}
        files = {"sentencepiece.bpe.model": model, "vocab.json": vocab, "tokenizer_config.json": config}
        return files, len(vocab) + 108, {**fairseq, "num_beams": 5}
    if kind in CODES:
        name = "MBart50Tokenizer" if kind == "mbart50" else "MBartTokenizer"
        files = {"sentencepiece.bpe.model": model, "tokenizer_config.json": {"tokenizer_class": name}}
        return files, count + 2 + CODES[kind], {**fairseq, "early_stopping": True, "num_beams": 3}
    if kind == "pegasus":
        model = sentencepiece(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **UNIGRAM)
        stated = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": 1,
                  "length_penalty": 0.6, "num_beams": 8}  # fmt: skip
        config = {"tokenizer_class": "PegasusTokenizer"}
        return {"spiece.model": model, "tokenizer_config.json": config}, count + 103, stated
    library = json.loads(byte_bpe(()).to_str())["model"]
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab = [*first, *sorted(set(library["vocab"]) - set(first)), "<mask>"]
    files = {"vocab.json": {text: n for n, text in enumerate(vocab)},
             "merges.txt": "\n".join(["#version: 0.2", *map(" ".join, library["merges"])]).encode(),
             "tokenizer_config.json": {"tokenizer_class": "BartTokenizer"}}  # fmt: skip
    stated = {**fairseq, "forced_bos_token_id": 0, "no_repeat_ngram_size": 3, "min_length": 8, "length_penalty": 2.0,
              "num_beams": 4, "early_stopping": True}  # fmt: skip
    return files, len(vocab), stated


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Makes a checkpoint of a kind with its tokenizer once: folder, model and tokenizer as transformers reads them."""
    known = {}

    def checkpoint(kind):
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            case = next(case for case in BARTS if case.name == kind.removesuffix("50"))
            files, size, stated = files_of(kind)
            roles = {key: value for key, value in stated.items() if key.endswith("token_id")}
            base = {**case.base, "vocab_size": size, "max_position_embeddings": 64, **roles}
            made(dataclasses.replace(case, base=base), 0, folder)
            for name, content in {**files, "generation_config.json": {**stated, "max_length": 24}}.items():
                (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
            library = transformers()
            tokenizer = getattr(library, files["tokenizer_config.json"]["tokenizer_class"]).from_pretrained(folder)
            known[kind] = folder, getattr(library, case.cls).from_pretrained(folder).eval(), tokenizer
        return known[kind]

    return checkpoint


def expected(reference, tokenizer, texts, **options):
    """The generated ids of each text, without padding."""
    ids = reference.generate(**tokenizer(texts, return_tensors="pt", padding=True), do_sample=False, **options)
    end = reference.generation_config.eos_token_id
    return [row[: row.index(end) + 1] if end in row else row for row in ids[:, 1:].tolist()]


CASES = [
    ("bart", {}, {}),
    ("bart", {"beams": 1}, {"num_beams": 1}),
    ("pegasus", {}, {}),
    ("marian", {}, {}),
    ("marian", {"beams": 2, "max_tokens": 9}, {"num_beams": 2, "max_new_tokens": 9}),
    ("marian", {"target_lang": "fra"}, {"text": ">>fra<< {}"}),
    ("m2m_100", {"target_lang": "fr"}, {"forced": "__fr__"}),
    ("m2m_100", {"source_lang": "de", "target_lang": "zu"}, {"source": "de", "forced": "__zu__"}),
    ("mbart50", {"source_lang": "fr_XX", "target_lang": "sl_SI"}, {"source": "fr_XX", "forced": "sl_SI"}),
    ("mbart", {"source_lang": "de_DE", "target_lang": "ro_RO"}, {"source": "de_DE", "start": "ro_RO"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "options", "theirs"), CASES, ids=lambda value: value if isinstance(value, str) else None
)
def test_as_transformers(checkpoint, kind, options, theirs):
    folder, reference, tokenizer = checkpoint(kind)
    theirs = dict(theirs)
    tokens = {"forced": "forced_bos_token_id", "start": "decoder_start_token_id"}
    texts = [theirs.get("text", "{}").format(text) for text in TEXTS]
    theirs.pop("text", None)
    if "source" in theirs:
        tokenizer.src_lang = theirs.pop("source")
    theirs = {
        tokens.get(name, name): tokenizer.convert_tokens_to_ids(value) if name in tokens else value
        for name, value in theirs.items()
    }
    model = models.load(folder, threads=1)
    found = model.generate_batch(TEXTS, **options)
    assert [one.tokens for one in found] == expected(reference, tokenizer, texts, **theirs)
    assert [one.prompt for one in found] == [tokenizer(text)["input_ids"] for text in texts]
    languages = [] if model.tokenizer.languages is None else model.tokenizer.languages.ids.values()
    for one in found:
        tokens = [token for token in one.tokens if token not in languages]
        assert one.text.strip() == tokenizer.decode(tokens, skip_special_tokens=True).strip()


def test_the_command(checkpoint, capsys):
    folder, reference, tokenizer = checkpoint("m2m_100")
    words = ["generate", str(folder), "-p", TEXTS[0], "--beams", "3", "--source-lang", "en", "--json"]
    assert run([*words, "--target-lang", "fr"]) == 0
    tokenizer.src_lang = "en"
    (want,) = expected(reference, tokenizer, TEXTS[:1], num_beams=3, forced_bos_token_id=tokenizer.get_lang_id("fr"))
    assert json.loads(capsys.readouterr().out)["tokens"] == want
    assert run([*words, "--target-lang", "xx"]) == 2
    assert "'xx'" in capsys.readouterr().out


def test_a_text_longer_than_the_positions_is_refused(checkpoint):
    model = models.load(checkpoint("bart")[0], threads=1)
    with pytest.raises(cc.UsageError, match=r"E-LM-CONTEXT.*64"):
        model.generate("word " * 80)
    assert len(model.generate_batch(["word"], max_tokens=500, beams=1)[0].tokens) <= 63
