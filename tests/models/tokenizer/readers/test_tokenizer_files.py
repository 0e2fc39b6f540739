"""Tokenizer files of many kinds against the libraries that made them, and files that are damaged."""

import base64
import functools
import json
import os
import struct
import time

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.models.tokenizer import gguf_metadata, read
from candle_convert.models.tokenizer.readers import tiktoken
from candle_convert.models.tokenizer.readers.tokenizer_json import unprinted
from candle_convert.runtime.base.errors import Error, LimitError
from candle_convert.runtime.tensor.storage import Held
from candle_convert.tests.builders.trained_tokenizers import (
    RWKV,
    SAMPLE,
    byte_bpe,
    corpus,
    file_tokenizer,
    gguf_tokenizer,
    library_json,
    sentencepiece,
    told_alike,
    wordpiece,
)

tokenizers = pytest.importorskip("tokenizers")
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
    r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| "
    r"?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": "<unk>", "chat_template": "{{ messages }}"}


def test_a_tokenizer_json_with_what_stands_beside_it():
    library = byte_bpe(())
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    try:
        text = library.to_str()
    finally:
        library.post_processor = tokenizers.processors.ByteLevel()
    ours = file_tokenizer(
        {
            "tokenizer.json": text,
            "tokenizer_config.json": json.dumps(CONFIG),
            "generation_config.json": '{"eos_token_id": [2, 4]}',
            "additional_chat_templates/rag.jinja": "rag",
        }
    )
    assert (ours.bos, ours.eos, ours.unk, ours.opening, ours.closing) == (1, 2, 0, (1,), (2,))
    assert ours.ends >= {2, 4}
    assert ours.templates == {"default": "{{ messages }}", "rag": "rag"}
    for sample in SAMPLE:
        wanted = library.encode(sample, add_special_tokens=False).ids
        assert ours.encode(sample) == [1, *wanted, 2]
        assert ours.encode(sample, add_bos=False, add_eos=False) == wanted
        assert ours.decode(ours.encode(sample)) == library.decode(wanted)
        stream = ours.stream()
        assert "".join(map(stream.push, wanted)) + stream.finish() == sample
    assert ours.encode("<s>", special=False, add_bos=False, add_eos=False) != [1]


def test_vocab_and_merges(tmp_path):
    library = byte_bpe(())
    library.model.save(str(tmp_path))
    files = {name: (tmp_path / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    ours = file_tokenizer({**files, "tokenizer_config.json": json.dumps(CONFIG)})
    for sample in (*SAMPLE, "<s>a</s>"):
        assert ours.encode(sample) == library.encode(sample, add_special_tokens=False).ids


def test_wordpiece_in_vocab_txt_and_in_gguf():
    made = wordpiece()
    ids = made.get_vocab()
    tokens = sorted(ids, key=ids.get)
    ours = file_tokenizer({"vocab.txt": "\n".join(tokens) + "\n"})
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    named = {
        f"{role}_token_id": ids[f"[{name}]"]
        for role, name in zip(("bos", "unknown", "seperator"), ("CLS", "UNK", "SEP"), strict=True)
    }
    marked = [token if token in special else token[2:] if token.startswith("##") else f"▁{token}" for token in tokens]
    gguf = gguf_tokenizer(
        {"model": "bert", "tokens": marked, "token_type": [3 if token in special else 1 for token in tokens], **named}
    )
    for sample in SAMPLE:
        wanted = [ids["[CLS]"], *made.encode(sample).ids, ids["[SEP]"]]
        assert ours.encode(sample) == wanted
        if told_alike(sample):
            assert gguf.encode(sample) == wanted, sample


def test_tiktoken_files_have_the_merges_of_their_ranks():
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [split, tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        corpus(), tokenizers.trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    from candle_convert.models.tokenizer.core.vocabulary import letters_bytes

    ids = made.get_vocab()
    lines = [f"{base64.b64encode(letters_bytes(token)).decode()} {ids[token]}" for token in sorted(ids, key=ids.get)]
    ours = file_tokenizer({"tokenizer.model": "\n".join(lines)})
    assert ours.bos == len(ids)
    for sample in SAMPLE:
        assert ours.encode(sample) == [len(ids), *made.encode(sample).ids]
        assert ours.decode(ours.encode(sample)) == sample


def glm4_ranks():
    """The content of a tiktoken file, and the library's tokenizer that it is of."""
    from candle_convert.models.tokenizer.core.vocabulary import letters_bytes

    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=True))
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [split, tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        corpus(), tokenizers.trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )
    ids = made.get_vocab()
    return "\n".join(
        f"{base64.b64encode(letters_bytes(token)).decode()} {ids[token]}" for token in sorted(ids, key=ids.get)
    ), made


@pytest.mark.parametrize("named", [False, True])
def test_glm4_files_begin_texts_with_two_tokens(named):
    content, made = glm4_ranks()
    count = made.get_vocab_size()
    texts = ["<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<|cursor|>"] if named else tiktoken.GLM4
    decoder = {str(count + place): {"content": text, "special": True} for place, text in enumerate(texts)}
    config = {"tokenizer_class": "ChatGLM4Tokenizer"} | ({"added_tokens_decoder": decoder} if named else {})
    files = {
        "tokenizer.model": content,
        "config.json": json.dumps({"model_type": "chatglm"}),
        "tokenizer_config.json": json.dumps(config),
    }
    ours = file_tokenizer(files)
    opening = [count + texts.index("[gMASK]"), count + texts.index("<sop>")]
    for sample in SAMPLE:
        assert ours.encode(sample) == [*opening, *made.encode(sample).ids]
    assert ours.encode("<|user|>", add_bos=False) == [count + texts.index("<|user|>")]
    assert {count, count + texts.index("<|user|>")} <= ours.ends
    carried = gguf_metadata(
        cc.Graph(attachments={name: Held(text.encode()) for name, text in files.items()}), "chatglm", None
    )
    assert (carried["tokenizer.ggml.pre"], carried["tokenizer.ggml.add_bos_token"]) == ("glm4", False)
    again = read(cc.Graph(metadata=carried))
    assert all(again.encode(sample) == made.encode(sample).ids for sample in SAMPLE)


def test_chatglm3_has_tokens_that_no_file_names():
    spm = pytest.importorskip("sentencepiece")
    library = spm.SentencePieceProcessor(model_proto=sentencepiece())
    count = library.get_piece_size()
    names = ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
    ids = {name: count + place for place, name in enumerate(names)}
    config = {
        "tokenizer_class": "ChatGLMTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_chatglm.ChatGLMTokenizer", None]},
    }
    files = {"tokenizer.model": sentencepiece(), "tokenizer_config.json": json.dumps(config).encode()}
    graph = cc.Graph(attachments={name: Held(content) for name, content in files.items()})
    ours, carried = read(graph), gguf_metadata(graph, "chatglm", count + 12)
    again = read(cc.Graph(metadata=carried))
    for sample in SAMPLE:
        text = sample.replace("\0", "")
        assert ours.encode(text) == [ids["[gMASK]"], ids["sop"], *library.encode(text)]
    turn = "<|user|>\n Hi<|assistant|>"
    wanted = [ids["<|user|>"], *library.encode("\n Hi"), ids["<|assistant|>"]]
    assert ours.encode(turn, add_bos=False) == again.encode(turn) == wanted
    assert ours.ends >= {library.eos_id(), ids["<|user|>"], ids["<|observation|>"]}
    assert carried["tokenizer.ggml.pre"] == "chatglm-spm"
    assert carried["tokenizer.ggml.tokens"][:3] == ["<unk>", "<bos>", "<eos>"]
    assert carried["tokenizer.ggml.tokens"][count:] == [
        *names,
        *(f"[PAD{token}]" for token in range(count + 9, count + 12)),
    ]
    assert carried["tokenizer.ggml.token_type"][count:].tolist() == [3] * 9 + [5] * 3
    assert carried["tokenizer.ggml.eot_token_id"] == ids["<|user|>"]


@functools.cache
def tekken():
    """A tekken.json, and the library's tokenizer that it is of."""
    from candle_convert.models.tokenizer.core.vocabulary import letters_bytes

    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=True))
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(TEKKEN), "isolated")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [split, tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        corpus(), tokenizers.trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    pieces = [letters_bytes(token) for token, _ in sorted(made.get_vocab().items(), key=lambda item: item[1])]
    order = [*(bytes((byte,)) for byte in range(256)), *(piece for piece in pieces if len(piece) > 1)]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
        for rank, piece in enumerate(order)
    ]
    config = {
        "pattern": TEKKEN,
        "num_vocab_tokens": 600,
        "default_vocab_size": 580,
        "default_num_special_tokens": 30,
        "version": "v3",
    }
    return {"config": config, "vocab": vocab}, order


def test_tekken_files_alone(tmp_path):
    """Against tiktoken, which mistral-common runs such files with."""
    library = pytest.importorskip("tiktoken")
    said, order = tekken()
    ranks = {piece: rank for rank, piece in enumerate(order[:550])}
    made = library.Encoding("tekken", pat_str=TEKKEN, mergeable_ranks=ranks, special_tokens={})
    ours = file_tokenizer({"tekken.json": json.dumps(said)})
    assert (ours.bos, ours.eos, ours.unk, ours.pad, len(ours)) == (1, 2, 0, 11, 580)
    for sample in SAMPLE:
        assert ours.encode(sample) == [1, *(30 + token for token in made.encode(sample, disallowed_special=()))], sample
        assert ours.decode(ours.encode(sample)) == sample
    assert ours.encode("[INST]a[/INST]<SPECIAL_29>", add_bos=False) == [3, 30 + ranks[b"a"], 4, 29]


def test_tekken_files_carried_to_gguf():
    said, _ = tekken()
    listed = [
        {"rank": place, "token_str": text, "is_control": True}
        for place, text in enumerate(["<unk>", "<s>", "</s>", "[THINK]"])
    ]
    content = json.dumps(said | {"special_tokens": listed}).encode()
    graph = cc.Graph(attachments={"tekken.json": Held(content)})
    ours, carried = read(graph), gguf_metadata(graph, "llama", 590)
    assert (carried["tokenizer.ggml.model"], carried["tokenizer.ggml.pre"]) == ("gpt2", "tekken")
    assert [carried[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos", "unknown")] == [1, 2, 0]
    assert carried["tokenizer.ggml.tokens"][3:6] == ["[THINK]", "<SPECIAL_4>", "<SPECIAL_5>"]
    again = read(cc.Graph(metadata=carried))
    assert all(again.encode(sample) == ours.encode(sample) for sample in SAMPLE if sample.isascii())


def test_words_between_white_space():
    """llama.cpp's kind "whitespace": what jina-embeddings-v2-base-zh has."""
    tokens = ["a", "b", "ab", "c", "é", "<unk>"]
    ours = gguf_tokenizer(
        {"model": "whitespace", "pre": "whitespace", "tokens": tokens, "token_type": [1] * 6, "merges": ["a b"]}
    )
    assert ours.encode(" ab\n　c  éba ") == [2, 3, 4, 1, 0]
    lowered = gguf_tokenizer(
        {
            "model": "whitespace",
            "tokens": tokens,
            "token_type": [1] * 6,
            "merges": ["a b"],
            "normalizer.lowercase": True,
        }
    )
    assert lowered.encode("AB É") == [2, 4]


def test_llama2c_files_have_sentencepieces_ids():
    spm = pytest.importorskip("sentencepiece")
    library = spm.SentencePieceProcessor(model_proto=sentencepiece())
    rows = []
    for token in range(library.get_piece_size()):
        text = {1: "\n<s>\n", 2: "\n</s>\n"}.get(token, library.id_to_piece(token).replace("▁", " ")).encode()
        rows.append(struct.pack("<fi", library.get_score(token), len(text)) + text)
    ours = file_tokenizer({"tokenizer.bin": struct.pack("<i", 30) + b"".join(rows)})
    for sample in SAMPLE:
        text = sample.replace("\0", "")
        assert ours.encode(text) == [1, *library.encode(text)]
        assert ours.decode(ours.encode(text)) == text


def test_rwkv_takes_the_longest_token():
    ours = file_tokenizer({"rwkv_vocab_v20230424.txt": RWKV})
    assert ours.encode("abaé\n\nit'sé\t'\"\0") == [3, 2, 6, 8, 7, 10, 9, 1]
    assert ours.decode([3, 4, 5, 10]) == "abéé\t"
    assert ours.encode("<s>a") == [0, 2]
    gguf = gguf_tokenizer(
        {"model": "rwkv", "tokens": list(ours.vocabulary.texts), "token_type": list(ours.vocabulary.kinds)}
    )
    assert gguf.encode("abaé\n\nit'sé\t") == [3, 2, 6, 8, 7, 10]


LIBRARY = library_json()
ADDED = {"content": "q", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
WORDS = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": {"[UNK]": 0},
}

ENDLESS_WORDS = WORDS | {"max_input_chars_per_word": 2**40}


def with_model(**changes):
    return LIBRARY | {"model": LIBRARY["model"] | changes}


def charsmap(text):
    return {"type": "Precompiled", "precompiled_charsmap": text}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


BAD_MERGE = LIBRARY | {"model": LIBRARY["model"] | {"merges": [["q", "never"]]}}
DAMAGED = {
    "not JSON": ({"tokenizer.json": "{"}, "E-TOKENIZER-JSON"),
    "no tokenizer": ({"tokenizer.json": "{}"}, "E-TOKENIZER-JSON"),
    "not UTF-8": ({"tokenizer.json": b"\xff"}, "E-TOKENIZER-TEXT"),
    "configuration not JSON": (
        {"tokenizer.json": json.dumps(LIBRARY), "tokenizer_config.json": "["},
        "E-TOKENIZER-JSON",
    ),
    "merges of what is no token": ({"tokenizer.json": json.dumps(BAD_MERGE)}, "E-TOKENIZER-JSON"),
    "a model that is none": ({"tokenizer.json": json.dumps(LIBRARY | {"model": 5})}, "E-TOKENIZER-JSON"),
    "nested deeply": ({"tokenizer.json": "[" * 100_000}, "E-TOKENIZER-JSON"),
    "a key twice": ({"tokenizer.json": '{"normalizer": null, "normalizer": null}'}, "E-TOKENIZER-JSON"),
    "an id of 2^31": (
        {"tokenizer.json": json.dumps(with_model(vocab={**LIBRARY["model"]["vocab"], "x" * 30: 2**31}))},
        "E-TOKENIZER-JSON",
    ),
    "an id of 2^32 - 1": (
        {"tokenizer.json": json.dumps(with_model(vocab={"a": 2**32 - 1}, merges=[]))},
        "E-TOKENIZER-JSON",
    ),
    "a negative id": ({"tokenizer.json": json.dumps(with_model(vocab={"a": -1}, merges=[]))}, "E-TOKENIZER-JSON"),
    "an id of 0.5": ({"tokenizer.json": json.dumps(with_model(vocab={"a": 0.5}, merges=[]))}, "E-TOKENIZER-JSON"),
    "an id that is a boolean": (
        {"tokenizer.json": json.dumps(with_model(vocab={"a": True}, merges=[]))},
        "E-TOKENIZER-JSON",
    ),
    "an added token's id of 2^31": (
        {"tokenizer.json": json.dumps(LIBRARY | {"added_tokens": [ADDED | {"id": 2**31}]})},
        "E-TOKENIZER-JSON",
    ),
    "WordPiece without its unknown token": (
        {"tokenizer.json": json.dumps(LIBRARY | {"model": WORDS | {"vocab": {"a": 0}}})},
        "E-TOKENIZER-JSON",
    ),
    "WordPiece of endless words": (
        {"tokenizer.json": json.dumps(LIBRARY | {"model": ENDLESS_WORDS})},
        "E-TOKENIZER-JSON",
    ),
    "a character map of 8 GB": (
        {"tokenizer.json": json.dumps(LIBRARY | {"normalizer": charsmap("/////wAAAAAAAAA=")})},
        "E-TOKENIZER-SIZE",
    ),
    "a character map that is none": (
        {"tokenizer.json": json.dumps(LIBRARY | {"normalizer": charsmap("AAAA")})},
        "E-TOKENIZER-PANIC",
    ),
    "a merge without its prefix": (
        {"tokenizer.json": json.dumps(with_model(continuing_subword_prefix="####"))},
        "E-TOKENIZER-JSON",
    ),
    "a pattern that is none": (
        {"tokenizer.json": json.dumps(LIBRARY | {"pre_tokenizer": split("(")})},
        "E-TOKENIZER-JSON",
    ),
    "vocab.json with an id of 2^30": ({"vocab.json": json.dumps({"a": 2**30}), "merges.txt": ""}, "E-TOKENIZER-VOCAB"),
    "added tokens with an id of 2^23": (
        {"tokenizer.model": sentencepiece(), "added_tokens.json": json.dumps({"x": 2**23})},
        "E-TOKENIZER-SPM",
    ),
    "tekken with 2^23 special tokens": (
        {
            "tekken.json": json.dumps(
                {
                    **tekken()[0],
                    "config": {
                        **tekken()[0]["config"],
                        "default_num_special_tokens": 2**23,
                        "default_vocab_size": 2**23 + 256,
                    },
                }
            )
        },
        "E-TOKENIZER-TEKKEN",
    ),
    "vocab without merges": ({"vocab.json": "{}"}, "E-TOKENIZER-VOCAB"),
    "vocab of texts": ({"vocab.json": '{"a": "b"}', "merges.txt": ""}, "E-TOKENIZER-VOCAB"),
    "merges of three": ({"vocab.json": '{"a": 0}', "merges.txt": "a b c"}, "E-TOKENIZER-VOCAB"),
    "vocab.txt without CLS": ({"vocab.txt": "a\nb\n"}, "E-TOKENIZER-VOCAB"),
    "SentencePiece cut short": ({"tokenizer.model": sentencepiece()[:-7]}, "E-TOKENIZER-SPM"),
    "SentencePiece, a length of 2^60": (
        {"tokenizer.model": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x0f"},
        "E-TOKENIZER-SPM",
    ),
    "SentencePiece, a number without end": ({"tokenizer.model": b"\x0a" + b"\xff" * 12}, "E-TOKENIZER-SPM"),
    "SentencePiece of words": ({"tokenizer.model": sentencepiece() + b"\x12\x02\x18\x03"}, "E-TOKENIZER-KIND"),
    "character map cut short": (
        {"tokenizer.model": sentencepiece() + b"\x1a\x06\x12\x04\xff\xff\xff\xff"},
        "E-TOKENIZER-CHARSMAP",
    ),
    "no pieces": ({"tokenizer.model": b""}, "E-TOKENIZER-SPM"),
    "tiktoken without rank": ({"x.tiktoken": "YQ== 0\nYg==\n"}, "E-TOKENIZER-TIKTOKEN"),
    "tiktoken with a gap": ({"x.tiktoken": "YQ== 0\nYg== 2\n"}, "E-TOKENIZER-TIKTOKEN"),
    "RWKV, wrong length": ({"rwkv_vocab.txt": "1 'a' 2\n"}, "E-TOKENIZER-RWKV"),
    "RWKV, an expression": ({"rwkv_vocab.txt": "1 __import__('os') 1\n"}, "E-TOKENIZER-RWKV"),
    "RWKV, ids out of order": ({"rwkv_vocab.txt": "2 'a' 1\n"}, "E-TOKENIZER-RWKV"),
    "tekken without a configuration": ({"tekken.json": "{}"}, "E-TOKENIZER-TEKKEN"),
    "tekken of fewer tokens": ({"tekken.json": json.dumps(tekken()[0] | {"vocab": []})}, "E-TOKENIZER-TEKKEN"),
    "tekken with no token": (
        {"tekken.json": json.dumps(tekken()[0] | {"vocab": [{"token_bytes": "!"}] * 600})},
        "E-TOKENIZER-TEKKEN",
    ),
    "tekken with one token twice": (
        {"tekken.json": json.dumps(tekken()[0] | {"vocab": [{"token_bytes": "AA=="}] * 600})},
        "E-TOKENIZER-TEKKEN",
    ),
    "tekken with special tokens that are none": (
        {"tekken.json": json.dumps(tekken()[0] | {"special_tokens": 5})},
        "E-TOKENIZER-TEKKEN",
    ),
    "llama2.c, length of 2^31": ({"tokenizer.bin": struct.pack("<ifi", 8, 0.0, 2**31 - 1)}, "E-TOKENIZER-LLAMA2C"),
    "llama2.c, cut short": ({"tokenizer.bin": struct.pack("<if", 8, 0.0)}, "E-TOKENIZER-LLAMA2C"),
    "nothing": ({"config.json": "{}"}, "E-TOKENIZER-NONE"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused(case, capfd):
    files, code = DAMAGED[case]
    with pytest.raises(Error) as caught:
        file_tokenizer(files)
    assert caught.value.code == code
    assert capfd.readouterr().err == ""


GGUF = {
    "an unknown kind": ({"model": "xyz"}, "E-TOKENIZER-KIND"),
    "an unknown pre-tokenizer": ({"model": "gpt2", "pre": "xyz"}, "E-TOKENIZER-PRE"),
    "no merges": ({"model": "gpt2", "pre": "gpt-2"}, "E-TOKENIZER-TOKENS"),
    "scores of other length": ({"model": "llama", "scores": [1.0]}, "E-TOKENIZER-TOKENS"),
    "a character map of three bytes": (
        {"model": "t5", "precompiled_charsmap": np.frombuffer(b"abc", np.uint8)},
        "E-TOKENIZER-CHARSMAP",
    ),
}


@pytest.mark.parametrize("case", GGUF)
def test_damaged_gguf_keys_are_refused(case):
    keys, code = GGUF[case]
    with pytest.raises(Error) as caught:
        gguf_tokenizer({"tokens": ["a", "b"], **keys})
    assert caught.value.code == code


PARTS_THAT_TRY_TOO_MUCH = {
    "nested repetition": ({"pre_tokenizer": split("(a+)+$")}, "a" * 40 + "!"),
    "nested alternatives": ({"pre_tokenizer": split("(([a-z]+)+)+!")}, "how is the weatherinparistoday"),
    "a polynomial": ({"pre_tokenizer": split("a*a*a*a*[^a]")}, "a" * 2000),
    "a pattern that replaces": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": ""}},
        "x" * 60,
    ),
    "replacements that double": (
        {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 30,
            }
        },
        "a",
    ),
}


@pytest.mark.parametrize("case", PARTS_THAT_TRY_TOO_MUCH)
def test_parts_that_try_too_much_end(case, capfd):
    parts, text = PARTS_THAT_TRY_TOO_MUCH[case]
    with pytest.raises(Error) as caught:  # some at once, since a text is tried when the file is opened
        file_tokenizer({"tokenizer.json": json.dumps(LIBRARY | parts)}).encode(text)
    assert caught.value.code in ("E-TOKENIZER-PANIC", "E-TOKENIZER-STEPS", "E-TOKENIZER-SIZE")
    assert caught.value.exit_code == 6
    assert capfd.readouterr().err == ""


LARGE_PARTS = {
    "a replacement": {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 10_000_000},
    "a replacement by pattern": {"type": "Replace", "pattern": {"Regex": "a"}, "content": "b" * 10_000_000},
    "a pattern": {"type": "Replace", "pattern": {"String": "a" * 1_000_000}, "content": ""},
    "a regex": {"type": "Replace", "pattern": {"Regex": "(?:" + "ab|" * 100_000 + "c)"}, "content": ""},
    "a prefix": {"type": "Prepend", "prepend": "b" * 1_000_000},
    "a character map": {"type": "Precompiled", "precompiled_charsmap": "A" * (8 << 20)},
    "many": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 100_000},
    "nested": {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [{"type": "NFC"}] * 60}] * 60},
}


@pytest.mark.parametrize("place", ["normalizer", "decoder"])
@pytest.mark.parametrize("case", LARGE_PARTS)
def test_parts_larger_than_any_published_are_refused_at_once(case, place):
    part = json.loads(json.dumps(LARGE_PARTS[case]).replace("normalizers", f"{place}s"))
    before = time.process_time()
    with pytest.raises(LimitError) as caught:
        file_tokenizer({"tokenizer.json": json.dumps(LIBRARY | {place: part})})
    assert caught.value.code == "E-TOKENIZER-SIZE"
    assert time.process_time() - before < 5


A, S = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "s", "type_id": 0}}


def _template(single, count=1):
    special = {"s": {"id": "s", "ids": [1] * count, "tokens": ["a"] * count}}
    pair = [A, {"Sequence": {"id": "B", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


@pytest.mark.parametrize(
    "part",
    [
        _template([A] * 100),
        _template([S] * 1000 + [A], 1000),
        {"type": "Sequence", "processors": [_template([A, A])] * 30},
        {"type": "Sequence", "processors": [{"type": "Sequence", "processors": [_template([A, A])] * 3}] * 3},
        {"type": "Sequence", "processors": [_template([S, A, A], 100)] * 4},
    ],
)
def test_templates_that_multiply_a_text_are_refused(part):
    """1,000 places of a token with 100,000 ids end the process, from a file of 2 MB."""
    with pytest.raises(LimitError, match=r"the templates of tokenizer\.json repeat a text"):
        file_tokenizer({"tokenizer.json": json.dumps({**LIBRARY, "post_processor": part})})


def test_templates_of_published_models_are_taken():
    parts = {"type": "Sequence", "processors": [_template([S, A, S], 3), {"type": "ByteLevel", "add_prefix_space": True,
             "trim_offsets": False, "use_regex": True}]}  # fmt: skip
    assert file_tokenizer({"tokenizer.json": json.dumps({**LIBRARY, "post_processor": parts})}).encode("a")


ODD_VALUES = ([], ["NFC"], {}, {"a": 1}, None, True, 0, -1, 1.5, 10**30, "", "x", "\ud800", [[]], [None])


def _mutated(item, value):
    """The item with one of its parts or values replaced, for each."""
    if isinstance(item, dict):
        for key in item:
            yield {**item, key: value}
            yield from ({**item, key: inner} for inner in _mutated(item[key], value))
    elif isinstance(item, list):
        for place, element in enumerate(item):
            yield [*item[:place], value, *item[place + 1 :]]
            yield from ([*item[:place], inner, *item[place + 1 :]] for inner in _mutated(element, value))


WHOLE = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Replace", "pattern": {"Regex": r"\p{N}"}, "content": "0"},
            {"type": "Prepend", "prepend": "_"},
            {"type": "BertNormalizer", "clean_text": True, "lowercase": True, "strip_accents": None,
             "handle_chinese_chars": True},
        ],
    },
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": False},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True},
    ]},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        {"type": "Fuse"},
    ]},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {},
    },
    "truncation": {"direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0},
    "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "[PAD]"},
}  # fmt: skip
"""A component of each kind, with all its settings."""


@pytest.mark.parametrize("part", [*WHOLE, "model", "added_tokens"])
def test_settings_of_another_kind_are_our_errors(part, full, capfd):
    """Each value of tokenizer.json replaced by lists, objects, numbers: it is used, or refused by an error of ours."""
    small = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "unk_token": "a", "dropout": None,
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False}  # fmt: skip
    token = {"id": 3, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "special": True}
    base = {**LIBRARY, **WHOLE, "model": small, "added_tokens": [{**token, "normalized": False}]}
    assert file_tokenizer({"tokenizer.json": json.dumps(base)}).encode("ab")
    for number, value in enumerate(ODD_VALUES):
        for place, changed in enumerate(_mutated({part: base[part]}, value)):
            if not full and (number + place) % 5:
                continue
            try:
                tokenizer = file_tokenizer({"tokenizer.json": json.dumps({**base, **changed})})
                tokenizer.decode(tokenizer.encode("ab 12"))
            except Error:
                pass
    assert "Traceback" not in capfd.readouterr().err


def test_parts_that_no_published_model_has_still_work():
    parts = {
        "pre_tokenizer": split(r"\w+|[^\w\s]+"),
        "normalizer": {"type": "Replace", "pattern": {"Regex": "[0-9]+"}, "content": "0"},
    }
    said = json.dumps(LIBRARY | parts)
    text = "Hello world 12345 <s> it's"
    assert (
        file_tokenizer({"tokenizer.json": said}).encode(text)
        == tokenizers.Tokenizer.from_str(said).encode(text, add_special_tokens=False).ids
    )


def test_vocabularies_with_holes_are_kept():
    ids = {**LIBRARY["model"]["vocab"], "zzz": 2000}
    ours = file_tokenizer({"tokenizer.json": json.dumps(with_model(vocab=ids))})
    assert (len(ours), ours.id_of("zzz"), ours.vocabulary.texts[1999]) == (2001, 2000, "[PAD1999]")


def test_standard_error_keeps_what_others_print(capfd):
    with unprinted():
        os.write(2, b"a line of another thread\n")
    assert capfd.readouterr().err == "a line of another thread\n"
