"""Tokenizers from Hugging Face's files to GGUF keys and back: against gguf-py's own reading of the files, and
transformers' of what comes back."""

import json

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.models.tokenizer import gguf_metadata, read
from candle_convert.models.tokenizer.writers.detect_pre_tokenizer import pre_tokenizer
from candle_convert.models.tokenizer.writers.hf_files import hf_files
from candle_convert.runtime.base.errors import Error
from candle_convert.runtime.tensor.storage import Held
from candle_convert.tests.builders.trained_tokenizers import (
    PATTERNS,
    RWKV,
    SAMPLE,
    SPECIALS,
    byte_bpe,
    library_json,
    sentencepiece,
    told_alike,
    wordpiece,
)

tokenizers = pytest.importorskip("tokenizers")
LIBRARY = library_json()
TEMPLATE = "{{ messages[0].content }}"
BASE = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
NAMED = [{"name": "default", "template": TEMPLATE}, {"name": "tool use", "template": "{{ tools }}"}]
IDS = {"bos_token_id": 3, "pad_token_id": 0}
AROUND = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}
BOTH = AROUND | {
    "single": [*AROUND["single"], {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
    "special_tokens": {
        **AROUND["special_tokens"],
        "<|im_end|>": {"id": "<|im_end|>", "ids": [4], "tokens": ["<|im_end|>"]},
    },
}
FOLDERS = {
    "byte level": {"tokenizer.json": LIBRARY, "tokenizer_config.json": BASE},
    "BOS by template, named chat templates": {
        "tokenizer.json": LIBRARY | {"post_processor": AROUND},
        "tokenizer_config.json": BASE | {"chat_template": NAMED},
    },
    "EOS by template that is another": {
        "tokenizer.json": LIBRARY | {"post_processor": BOTH},
        "tokenizer_config.json": BASE,
    },
    "ids in config.json": {
        "tokenizer.json": LIBRARY,
        "tokenizer_config.json": {"add_bos_token": True},
        "config.json": IDS,
    },
    "no configuration": {"tokenizer.json": LIBRARY},
    "a chat template": {"tokenizer.json": LIBRARY, "tokenizer_config.json": BASE | {"chat_template": TEMPLATE}},
}


def graph_of(files):
    held = {
        name: content if isinstance(content, bytes) else json.dumps(content).encode() for name, content in files.items()
    }
    return cc.Graph(attachments={name: Held(content) for name, content in held.items()})


def saved(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


@pytest.mark.parametrize("name", FOLDERS)
def test_special_ids_flags_merges_and_templates_are_gguf_pys(name, tmp_path):
    gguf = pytest.importorskip("gguf")
    theirs = gguf.SpecialVocab(saved(tmp_path, FOLDERS[name]), load_merges=True)
    ours = gguf_metadata(graph_of(FOLDERS[name]), "llama", None)
    keys = {
        "bos": "bos",
        "eos": "eos",
        "unk": "unknown",
        "sep": "seperator",
        "pad": "padding",
        "mask": "mask",
        "eot": "eot",
    }
    wanted = {
        f"tokenizer.ggml.{keys[role]}_token_id": token
        for role, token in theirs.special_token_ids.items()
        if role in keys
    }
    wanted |= {f"tokenizer.ggml.add_{role}_token": flag for role, flag in theirs.add_special_token.items()}
    found = {key: value for key, value in ours.items() if key.endswith("_token_id") or ".add_" in key}
    assert found == wanted
    assert ours["tokenizer.ggml.merges"] == theirs.merges
    templates = (
        theirs.chat_template
        if isinstance(theirs.chat_template, list)
        else [{"name": "default", "template": theirs.chat_template}]
    )
    assert ours.get("tokenizer.chat_template") == templates[0]["template"]
    if len(templates) > 1:
        assert ours["tokenizer.chat_templates"] == ["tool_use"]
        assert ours["tokenizer.chat_template.tool_use"] == "{{ tools }}"


@pytest.mark.parametrize("pre", PATTERNS)
def test_pre_tokenizers_are_recognised_by_their_words(pre):
    assert pre_tokenizer(byte_bpe(PATTERNS[pre], whole=pre == "llama-bpe"), pre == "llama-bpe", None) == pre


def test_what_cannot_be_carried_is_told():
    with pytest.raises(Error) as caught:
        gguf_metadata(graph_of({"tokenizer.json": json.loads(byte_bpe((r"[aeiou]+",)).to_str())}), "llama", None)
    assert (caught.value.code, caught.value.exit_code) == ("E-TOKENIZER-PRE", 4)
    with pytest.raises(Error) as caught:
        gguf_metadata(graph_of(FOLDERS["byte level"]), "llama", 20)
    assert caught.value.code == "E-TOKENIZER-ROWS"
    padded = gguf_metadata(graph_of(FOLDERS["byte level"]), "llama", 1000)
    assert padded["tokenizer.ggml.tokens"][-1] == "[PAD999]"
    assert padded["tokenizer.ggml.token_type"][-1] == 5
    graph = graph_of({"tokenizer.model": sentencepiece(normalization_rule_name="nmt_nfkc")})
    gguf_metadata(graph, "llama", None)
    assert [note.code for note in graph.notes] == ["W-TOKENIZER-DIFFERS"]
    assert gguf_metadata(graph_of({"config.json": {}}), "llama", None) == {}


def _as_merges():
    """SentencePiece's BPE as transformers writes it in a tokenizer.json."""
    files = hf_files(cc.Graph(metadata=gguf_metadata(graph_of({"tokenizer.model": sentencepiece()}), "llama", None)))
    return {"tokenizer.json": files["tokenizer.json"], "tokenizer_config.json": files["tokenizer_config.json"]}


ROUNDS = {
    **{
        f"byte level, {pre}": lambda pre=pre: {
            "tokenizer.json": byte_bpe(PATTERNS[pre], whole=pre == "llama-bpe").to_str().encode(),
            "tokenizer_config.json": BASE,
        }
        for pre in PATTERNS
    },
    "SentencePiece BPE": lambda: {"tokenizer.model": sentencepiece()},
    "SentencePiece BPE, no space before": lambda: {"tokenizer.model": sentencepiece(add_dummy_prefix=False)},
    "SentencePiece BPE as merges": _as_merges,
    "unigram": lambda: {"spiece.model": sentencepiece("unigram", byte_fallback=False, remove_extra_whitespaces=True)},
    "WordPiece": lambda: {
        "tokenizer.json": wordpiece().to_str().encode(),
        "tokenizer_config.json": {
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "unk_token": "[UNK]",
            "add_bos_token": True,
            "add_eos_token": True,
        },
    },
}


@pytest.mark.parametrize("name", ROUNDS)
def test_from_files_to_gguf_to_files_that_transformers_loads(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    graph = graph_of(ROUNDS[name]())
    source = read(graph)
    metadata = gguf_metadata(graph, "llama", None)
    assert metadata["tokenizer.ggml.tokens"]
    middle = cc.Graph(metadata={"tokenizer.chat_template": TEMPLATE, **metadata})
    carried = read(middle)
    loaded = transformers.AutoTokenizer.from_pretrained(saved(tmp_path, hf_files(middle)))
    for sample in (*SAMPLE, "<s>x</s>"):
        text = sample.replace("\0", "")
        if name == "WordPiece" and not told_alike(text):
            continue
        wanted = source.encode(text, add_bos=False, add_eos=False)
        assert carried.encode(text, add_bos=False, add_eos=False) == wanted, text
        assert loaded.encode(text, add_special_tokens=False) == wanted, text
        assert loaded.encode(text) == carried.encode(text)
    assert loaded.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"
    assert (loaded.bos_token_id, loaded.eos_token_id) == (carried.bos, carried.eos)


def test_rwkv_files_come_back():
    metadata = gguf_metadata(graph_of({"rwkv_vocab_v20230424.txt": RWKV.encode()}), "rwkv6", 15)
    assert metadata["tokenizer.ggml.tokens"][1:5] == ["\\x00", "a", "ab", "\\xc3"]
    assert metadata["tokenizer.ggml.eot_token_id"] == 8
    files = hf_files(cc.Graph(metadata=metadata))
    again = read(graph_of({"rwkv_vocab_v20230424.txt": files["rwkv_vocab_v20230424.txt"]}))
    assert again.vocabulary.texts == metadata["tokenizer.ggml.tokens"][:11]


def test_rwkv_chats_as_world_models_do():
    from candle_convert.models.generation.chat_template import prompt

    metadata = gguf_metadata(graph_of({"rwkv_vocab_v20230424.txt": RWKV.encode()}), "rwkv7", None)
    chat = [
        {"role": "user", "content": "Hi "},
        {"role": "assistant", "content": "<think>a</think> b"},
        {"role": "user", "content": "c"},
    ]
    chat.insert(0, {"role": "system", "content": "Be brief"})
    text = "<s>System: Be brief\n\nUser: Hi\n\nAssistant: b\n\nUser: c\n\nAssistant:"
    assert prompt(read(cc.Graph(metadata=metadata)), chat) == text
    own = graph_of({"rwkv_vocab_v20230424.txt": RWKV.encode(), "chat_template.jinja": b"{{ messages[0].content }}"})
    assert gguf_metadata(own, "rwkv7", None)["tokenizer.chat_template"] == "{{ messages[0].content }}"


def test_types_of_added_tokens():
    added = [*LIBRARY["added_tokens"]]
    for text, special in (("<|odd|>", False), ("<kept>", False), ("<hidden>", True)):
        added.append(LIBRARY["added_tokens"][0] | {"id": 700 + len(added), "content": text, "special": special})
    ours = gguf_metadata(graph_of({"tokenizer.json": LIBRARY | {"added_tokens": added}}), "llama", None)
    kinds = dict(zip(ours["tokenizer.ggml.tokens"], ours["tokenizer.ggml.token_type"].tolist(), strict=True))
    assert [kinds[text] for text in ("<|odd|>", "<kept>", "<hidden>", *SPECIALS[:1])] == [3, 4, 3, 3]
    assert ours["tokenizer.ggml.token_type"].dtype == np.int32


WRONG = {
    "model": ["llama"],
    "pre": np.uint32(3),
    "bos_token_id": np.arange(2),
    "eos_token_id": "2",
    "add_bos_token": np.array([True, False]),
    "add_space_prefix": "yes",
    "precompiled_charsmap": np.float32([1]),
    "padding_token_id": np.float32("nan"),
}


@pytest.mark.parametrize("key", WRONG)
def test_keys_of_another_type_are_told(key):
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "a", "b"],
        f"tokenizer.ggml.{key}": WRONG[key],
    }
    with pytest.raises(cc.FormatError, match=rf"tokenizer\.ggml\.{key}") as caught:
        read(cc.Graph(metadata=metadata))
    assert caught.value.code == "E-TOKENIZER-KEY"
