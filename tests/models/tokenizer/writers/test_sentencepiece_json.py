"""tokenizer.json made of SentencePiece models: the tokenizers library gives the ids that transformers gives of the
model's own files, and exported directories have it."""

import json
import shutil
import subprocess

import candle_convert as cc
import numpy as np
import pytest
import sentencepiece as spm
import tokenizers
import transformers
from candle_convert.models.tokenizer.readers.locate import read
from candle_convert.models.tokenizer.writers.sentencepiece_json import sentencepiece_json
from candle_convert.runtime.tensor.storage import Held
from candle_convert.tests.builders.trained_tokenizers import SAMPLE, sentencepiece

NORMALIZED = {"byte_fallback": False, "normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": True}
T5 = {**NORMALIZED, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
GEMMA = {
    "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "add_dummy_prefix": False,
    "bos_piece": "<bos>", "eos_piece": "<eos>",
}  # fmt: skip
BOS = {"add_bos_token": True}
CASES = {
    "LlamaTokenizer": ("bpe", {}, "tokenizer.model", {**BOS, "legacy": False}),
    "LlamaTokenizer legacy": ("bpe", {}, "tokenizer.model", {**BOS, "legacy": True}),
    "GemmaTokenizer": ("bpe", GEMMA, "tokenizer.model", BOS),
    "T5Tokenizer": ("unigram", T5, "spiece.model", {}),
    "XLMRobertaTokenizer": ("unigram", NORMALIZED, "sentencepiece.bpe.model", {}),
    "PegasusTokenizer": ("unigram", T5, "spiece.model", {}),
}
TEXTS = [*(text.replace("\0", "") for text in SAMPLE), "[INST] Hi </s> you", "a</s>b </s> c"]


@pytest.mark.parametrize("case", CASES)
def test_ids_are_those_of_transformers(case, tmp_path):
    kind, options, name, config = CASES[case]
    cls, model = case.split(" ")[0], sentencepiece(kind, **options)
    config = {"tokenizer_class": cls, **config}
    (tmp_path / name).write_bytes(model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = getattr(transformers, cls).from_pretrained(tmp_path)
    graph = cc.Graph(attachments={name: Held(model), "tokenizer_config.json": Held(json.dumps(config).encode())})
    made = sentencepiece_json(graph)
    assert list(made) == ["tokenizer.json"]
    ours = tokenizers.Tokenizer.from_str(made["tokenizer.json"].decode())
    for text in TEXTS:
        ids = theirs(text).input_ids
        assert ours.encode(text).ids == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


SPECIAL = ["</s>x", "</s> x", "a </s>", "</s></s>b", "x</s>\ny", "  two", " </s>x", "</s>  two"]
"""Texts whose words stand after special tokens and spaces."""


@pytest.mark.parametrize("config", [{"legacy": False}, {"legacy": False, "add_prefix_space": False}], ids=str)
def test_dummy_prefix_without_legacy_behaviour(config, tmp_path):
    """Our reader of tokenizer.model: one space in front of the text, none after special tokens."""
    model, config = sentencepiece("bpe"), {"tokenizer_class": "LlamaTokenizer", **BOS, **config}
    (tmp_path / "tokenizer.model").write_bytes(model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.LlamaTokenizer.from_pretrained(tmp_path)
    held = {"tokenizer.model": Held(model), "tokenizer_config.json": Held(json.dumps(config).encode())}
    ours = read(cc.Graph(attachments=held))
    for text in TEXTS + SPECIAL:
        assert ours.encode(text) == theirs(text).input_ids, text


def pieces_of(model):
    library = spm.SentencePieceProcessor(model_proto=model)
    return [library.id_to_piece(token) for token in range(library.get_piece_size())][3:]


def test_marian(tmp_path):
    """Pieces whose ids are those of a vocabulary of both languages."""
    source = sentencepiece("unigram", **NORMALIZED)
    pieces = [*sorted(pieces_of(source)), "猫", "▁Katze", ">>deu<<"]
    vocab = {piece: token for token, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    compared(tmp_path, transformers.MarianTokenizer, {"source.spm": source, "target.spm": source}, vocab, config,
             [*TEXTS, ">>deu<< hello", "Katze", "x 猫"])  # fmt: skip
    (tmp_path / "made.json").write_bytes(
        sentencepiece_json(cc.Graph(attachments={name: Held((tmp_path / name).read_bytes()) for name in (
            "source.spm", "vocab.json", "tokenizer_config.json")}))["tokenizer.json"])  # fmt: skip
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "made.json")).decode([vocab["▁Katze"]]).strip() == "Katze"


RUNS = [
    "猫犬鳥",
    "猫犬",
    "x 猫犬y",
    "猫",
    "犬猫",
    "猫 犬",
    "鳥鳥 the 猫犬",
    ">>deu<<猫犬",
    "the 魚]-^ house",
    "]-",
    "^&",
]
"""Texts with characters that the model lacks, several in a row."""


def test_runs_of_characters_that_the_model_lacks(tmp_path):
    """A run is one token: the vocabulary's of the whole run, or the unknown one."""
    source = sentencepiece("unigram", **NORMALIZED)
    own = [*pieces_of(source), "猫", "犬", "猫犬", "]-", "▁Katze", ">>deu<<"]
    vocab = {piece: token for token, piece in enumerate(["</s>", "<unk>", *dict.fromkeys(own), "<pad>"])}
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    compared(tmp_path, transformers.MarianTokenizer, {"source.spm": source, "target.spm": source}, vocab, config, RUNS)


def test_pieces_that_the_vocabulary_lacks_are_noted(tmp_path):
    """transformers gives the unknown token for them, which tokenizer.json cannot say."""
    source = sentencepiece("unigram", **NORMALIZED)
    pieces = [piece for piece in pieces_of(source) if len(piece) == 1]
    vocab = {piece: token for token, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    files = {"source.spm": source, "target.spm": source, "vocab.json": json.dumps(vocab).encode(),
             "tokenizer_config.json": b'{"tokenizer_class": "MarianTokenizer"}'}  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    graph = cc.Graph(attachments={name: Held(content) for name, content in files.items()})
    ours = tokenizers.Tokenizer.from_str(sentencepiece_json(graph)["tokenizer.json"].decode())
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    assert any(ours.encode(text).ids != theirs(text).input_ids for text in TEXTS)
    assert [note.code for note in graph.notes] == ["W-TOKENIZER-DIFFERS"]


JAVASCRIPT = """
const stated = JSON.parse(require("fs").readFileSync(0));
const steps = stated.map(step => [new RegExp(step.pattern.Regex, "gu"), step.content]);
const texts = JSON.parse(process.argv[1]);
console.log(JSON.stringify(texts.map(text => steps.reduce((text, [from, to]) => text.replaceAll(from, to), text))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_patterns_mean_the_same_in_javascript():
    """Transformers.js gives patterns to the engine of JavaScript, with the flags g and u."""
    source = sentencepiece("unigram", **NORMALIZED)
    files = {"source.spm": source, "vocab.json": json.dumps({"</s>": 0, "<unk>": 1, "a": 2}).encode(),
             "tokenizer_config.json": b'{"tokenizer_class": "MarianTokenizer"}'}  # fmt: skip
    graph = cc.Graph(attachments={name: Held(content) for name, content in files.items()})
    normalizer = json.loads(sentencepiece_json(graph)["tokenizer.json"])["normalizer"]
    steps = [step for step in normalizer["normalizers"] if step["type"] == "Replace"]
    library = tokenizers.Tokenizer(tokenizers.models.Unigram([("a", 0.0)], 0, False))
    library = tokenizers.Tokenizer.from_str(
        json.dumps({**json.loads(library.to_str()), "normalizer": {"type": "Sequence", "normalizers": steps}})
    ).normalizer
    texts = [*RUNS, "  two  spaces  ", "\n a\n "]
    found = subprocess.run(
        ["node", "-e", JAVASCRIPT, json.dumps(texts)],
        input=json.dumps(steps),
        text=True,
        capture_output=True,
        check=True,
    )
    assert json.loads(found.stdout) == [library.normalize_str(text) for text in texts]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_m2m100(kind, tmp_path):
    model = sentencepiece(kind, **NORMALIZED)
    vocab = {piece: token for token, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces_of(model)])}
    config = {"tokenizer_class": "M2M100Tokenizer", "language_codes": "m2m100", "src_lang": "de"}
    compared(tmp_path, transformers.M2M100Tokenizer, {"sentencepiece.bpe.model": model}, vocab, config, TEXTS)


def compared(folder, cls, models, vocab, config, texts):
    files = {**models, "vocab.json": json.dumps(vocab).encode(), "tokenizer_config.json": json.dumps(config).encode()}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    theirs = cls.from_pretrained(folder)
    made = sentencepiece_json(cc.Graph(attachments={name: Held(content) for name, content in files.items()}))
    ours = tokenizers.Tokenizer.from_str(made["tokenizer.json"].decode())
    for text in texts:
        ids = theirs(text).input_ids
        assert ours.encode(text).ids == ids, text
        ids = [token for token in ids if not str(theirs.convert_ids_to_tokens(token)).startswith("__")]
        assert ours.decode(ids).strip() == theirs.decode(ids, skip_special_tokens=True).strip(), text


def test_exported_directories_have_it(tmp_path):
    model = sentencepiece("unigram", **T5)
    config = transformers.T5Config(
        vocab_size=700, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    (tmp_path / "t5" / "spiece.model").write_bytes(model)
    cc.convert(tmp_path / "t5", tmp_path / "onnx", to="onnx")
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path / "t5")
    ours = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "onnx")
    for text in TEXTS:
        np.testing.assert_array_equal(ours(text).input_ids, theirs(text).input_ids)
