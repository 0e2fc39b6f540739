"""Tokenizers of encoder-decoders in the files that checkpoints come with, against transformers and sentencepiece."""

import importlib
import json

import pytest
from candle_convert import FormatError, UsageError
from candle_convert.tests.builders.encoder_decoder_cases import with_tokenizer
from candle_convert.tests.builders.trained_tokenizers import SAMPLE, byte_bpe, file_tokenizer, sentencepiece
from candle_convert.tests.oracles.transformers import transformers

spm = pytest.importorskip("sentencepiece")
TEXTS = [text.replace("\0", "") for text in SAMPLE] + ["Tom asked his teacher.", "猫犬 in the 猫 house é"]
UNIGRAM = {"kind": "unigram", "byte_fallback": False, "normalization_rule_name": "nmt_nfkc",
           "remove_extra_whitespaces": True}  # fmt: skip
BPE = {**UNIGRAM, "kind": "bpe"}


def pieces_of(model):
    library = spm.SentencePieceProcessor(model_proto=model)
    return [library.id_to_piece(token) for token in range(library.get_piece_size())]


def written(folder, files):
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name).write_bytes(data)
    held = {name: content if isinstance(content, bytes) else json.dumps(content) for name, content in files.items()}
    return file_tokenizer(held)


def marian_files(codes=()):
    """Two models and their joint vocabulary in another order, with characters that only one of them has."""
    source, target = sentencepiece(**UNIGRAM), sentencepiece(**UNIGRAM, character_coverage=0.999)
    pieces = dict.fromkeys([*sorted({*pieces_of(source)[3:-40], *pieces_of(target)[3:]}), "猫", *codes])
    vocab = {piece: token for token, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    return {"source.spm": source, "target.spm": target, "vocab.json": vocab,
            "tokenizer_config.json": {"tokenizer_class": "MarianTokenizer", "source_lang": "en"}}  # fmt: skip


def test_marian(tmp_path):
    ours = written(tmp_path, marian_files((">>fra<<", ">>deu<<")))
    library = transformers().MarianTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, ">>fra<< hello", ">>zzz<< hello", "a </s> b"]:
        ids = library(text).input_ids
        assert ours.encode(text) == ids, text
        assert ours.decode(ids).strip() == library.decode(ids, skip_special_tokens=True), text
    assert ours.encode_source("hello", target="deu") == library(">>deu<<hello").input_ids
    assert ours.languages.target("deu") is None
    with pytest.raises(UsageError, match=r"E-LANGUAGE.*'spa'"):
        ours.encode_source("hello", target="spa")
    with pytest.raises(UsageError, match="E-LANGUAGE"):
        ours.encode_source("hello", source="eng")


def test_marian_without_languages(tmp_path):
    ours = written(tmp_path, marian_files())
    assert ours.languages is None
    assert ours.encode_source("hello") == ours.encode("hello")
    with pytest.raises(UsageError, match="E-LANGUAGE"):
        ours.encode_source("hello", target="fra")


@pytest.mark.parametrize("settings", [UNIGRAM, BPE], ids=["unigram", "bpe"])
@pytest.mark.parametrize("codes", ["m2m100", "wmt21"])
def test_m2m100(settings, codes, tmp_path):
    model = sentencepiece(**settings)
    vocab = {piece: token for token, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces_of(model)[3:-30]])}
    config = {"tokenizer_class": "M2M100Tokenizer", "language_codes": codes, "src_lang": "de"}
    files = {"sentencepiece.bpe.model": model, "vocab.json": vocab, "tokenizer_config.json": config}
    ours = written(tmp_path, files)
    library = transformers().M2M100Tokenizer.from_pretrained(tmp_path)
    for source, target in (("de", "en"), ("en", "ha"), (None, "ja")):
        library.src_lang = source or "de"
        assert ours.languages.target(target) == library.get_lang_id(target)
        for text in TEXTS:
            ids = library(text).input_ids
            assert ours.encode_source(text, source, target) == ids, text
            assert ours.decode(ids).strip() == library.decode(ids[1:], skip_special_tokens=True), text
    with pytest.raises(UsageError, match=r"E-LANGUAGE.*'xx'"):
        ours.languages.target("xx")


FAIRSEQ = {"MBartTokenizer": ("en_XX", "ro_RO"), "MBart50Tokenizer": ("xh_ZA", "fr_XX"),
           "NllbTokenizer": ("fra_Latn", "zul_Latn")}  # fmt: skip


@pytest.mark.parametrize("name", FAIRSEQ)
def test_fairseq(name, tmp_path):
    """Ids are those of sentencepiece, one higher behind the special tokens; language tokens are those of
    transformers."""
    model = sentencepiece(**BPE if name == "NllbTokenizer" else UNIGRAM)
    source, target = FAIRSEQ[name]
    config = {"tokenizer_class": name, "src_lang": source}
    ours = written(tmp_path, {"sentencepiece.bpe.model": model, "tokenizer_config.json": config})
    library = getattr(transformers(), name).from_pretrained(tmp_path)
    plain = spm.SentencePieceProcessor(model_proto=model)
    for text in TEXTS:
        want = [token + 1 if token else 3 for token in plain.encode(text)]
        assert ours.encode(text, special=False, add_bos=False, add_eos=False) == want, text
    codes = importlib.import_module(library.__module__).FAIRSEQ_LANGUAGE_CODES
    assert ours.languages.ids == {code: plain.get_piece_size() + 1 + place for place, code in enumerate(codes)}
    assert ours.languages.starts(2) is (name == "MBartTokenizer")
    if name == "NllbTokenizer":
        return  # transformers needs tokenizer.json for the languages
    assert ours.languages.target(target) == library.convert_tokens_to_ids(target)
    for text in ("Hello world", "the cat's house"):
        ids = library(text).input_ids
        assert ours.encode_source(text, target=target) == ids
        assert ours.decode(ids) == library.decode(ids, skip_special_tokens=True)
    assert len(ours) == len(library)


def test_xlm_roberta(tmp_path):
    files = {"sentencepiece.bpe.model": sentencepiece(**UNIGRAM), "config.json": {"model_type": "xlm-roberta"}}
    ours = written(tmp_path, files)
    library = transformers().XLMRobertaTokenizer.from_pretrained(tmp_path)
    for text in ("Hello world", "the cat's house"):
        assert ours.encode(text) == library(text).input_ids
    assert len(ours) == len(library)


def test_nllb_in_tokenizer_json(tmp_path):
    model = sentencepiece(**BPE)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    codes = ["deu_Latn", "fra_Latn", "zul_Latn"]
    written(first, {"sentencepiece.bpe.model": model, "tokenizer_config.json": {"tokenizer_class": "NllbTokenizer"}})
    library = transformers().NllbTokenizer.from_pretrained(
        first, src_lang="deu_Latn", legacy_behaviour=True, extra_special_tokens=codes
    )
    library.save_pretrained(second)
    ours = file_tokenizer({path.name: path.read_bytes() for path in second.iterdir()})
    assert ours.origin.startswith("tokenizer.json")
    for text in ("Hello world", "the cat's house"):
        assert ours.encode_source(text) == library(text).input_ids
    assert ours.encode_source("x", "fra_Latn")[-1] == library.convert_tokens_to_ids("fra_Latn")
    assert ours.languages.target("zul_Latn") == library.convert_tokens_to_ids("zul_Latn")


def test_pegasus(tmp_path):
    model = sentencepiece(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **UNIGRAM)
    ours = written(tmp_path, {"spiece.model": model, "tokenizer_config.json": {"tokenizer_class": "PegasusTokenizer"}})
    library = transformers().PegasusTokenizer.from_pretrained(tmp_path)
    plain = spm.SentencePieceProcessor(model_proto=model)
    for text in TEXTS:
        assert ours.encode(text, special=False) == [*(token + 103 for token in plain.encode(text)), 1], text
    for text in ("Hello world", "the cat's house"):
        ids = library(text).input_ids
        assert ours.encode(text) == ids
        assert ours.decode(ids) == library.decode(ids, skip_special_tokens=True)
    assert (ours.pad, ours.eos, ours.unk) == (0, 1, 105)


def test_bart_in_vocab_and_merges(tmp_path):
    said = json.loads(byte_bpe(()).to_str())["model"]
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    pieces = sorted(set(said["vocab"]) - {*vocab})
    vocab |= {text: 4 + place for place, text in enumerate([*pieces, "<mask>"])}
    merges = "\n".join(["#version: 0.2", *map(" ".join, said["merges"])]).encode()
    config = {"tokenizer_class": "BartTokenizer"}
    ours = written(tmp_path, {"vocab.json": vocab, "merges.txt": merges, "tokenizer_config.json": config})
    library = transformers().BartTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        ids = library(text).input_ids
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == library.decode(ids, skip_special_tokens=True), text


@pytest.mark.parametrize("missing", ["vocab.json", "</s>", "<unk>", "id"])
def test_damaged_files_are_refused(missing, tmp_path):
    files = marian_files()
    if missing == "vocab.json":
        del files["vocab.json"]
    elif missing == "id":
        files["vocab.json"]["the"] = 10**9
    else:
        del files["vocab.json"][missing]
    with pytest.raises(FormatError, match="E-TOKENIZER-VOCAB"):
        written(tmp_path, files)


@pytest.mark.parametrize("said", [None, False, True])
@pytest.mark.parametrize("saved", [False, True])
def test_t5_ends_every_text(said, saved, tmp_path):
    """Whatever `add_eos_token` says; the texts of a pair have one end token each."""
    first = tmp_path / "first"
    first.mkdir()
    with_tokenizer(first)
    folder = tmp_path / "saved" if saved else first
    if saved:
        transformers().AutoTokenizer.from_pretrained(first).save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings if said is None else {**settings, "add_eos_token": said})
    )
    library = transformers().AutoTokenizer.from_pretrained(folder)
    ours = file_tokenizer({path.name: path.read_bytes() for path in folder.iterdir()})
    assert ours.encode("the cat's house") == library("the cat's house").input_ids
    ((pair, _),) = ours.encodings([("the cat", "a house")])
    assert pair.ids == library("the cat", "a house").input_ids
