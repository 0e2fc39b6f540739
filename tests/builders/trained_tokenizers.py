"""Small tokenizers trained by the tokenizers and sentencepiece libraries on the standard library's documentation."""

import functools
import io
import json

import candle_convert as cc
import numpy as np
from candle_convert.models.tokenizer import read
from candle_convert.runtime.tensor.storage import Held

SAMPLE = (
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n\n",
    "\t\n \r\n",
    "Hello world",
    " Hello  world ",
    "Hello, y'all! I'LL we'Re it's",
    "3 33 333 3333 33333",
    "1234567.89",
    "def f(x):\n    return x ** 2  # y\n\n\n\tif x:\n",
    "ç ÄÖÜ ẞ naïve e\u0301 a\u0308\u0323 ǅ ʰ",
    "नमस्ते दुनिया ব্যাকরণ ไวยากรณ์",
    "العربية: مرحبا ١٢٣ עברית \u200fשלום",
    "我想在apple工作1314151天～ 日本語カナ ｶﾅ 한국어 ㅋㅋ",
    "🚀 😶\u200d🌫️ 👩🏽‍💻 ✅ 🇺🇳",
    "\u00a0\u2003\u3000x\u2028y\u200bz\ufeff",
    "½ ² Ⅷ ₂ ① ٣ 〇 𝟘",
    "$1+2<=3>^~|`_@#%&*",
    "'''\"\"\"''' --- ... ///",
    "a\u0000b\u0007c\x1fd\x7fe\x85f",
    "\U0001f9ff\U000e0041\U00010348\U00020000\U0010ffff",
    "ﬁ Ａｂ １２ ™ … ﷺ ㎞ Å",
    "x" * 40,
    "the " * 9,
    "ᾼ Ὗ ώ ώ ﬀ",
    "  \n  Mixed\u3000  spaces \r\n\r\nend",
)
"""Texts of many scripts, with emoji, marks, odd white space and code."""
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS = {
    "gpt-2": (),
    "llama-bpe": (
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| "
        rf"?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "qwen2": (
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| "
        rf"?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    "starcoder": (r"\p{N}", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
}
"""By the name in ``tokenizer.ggml.pre``: the patterns that the files of such models have."""
RWKV = (
    "1 '\\x00' 1\n2 'a' 1\n3 'ab' 2\n4 b'\\xc3' 1\n5 b'\\xa9' 1\n6 'é' 2\n7 \"it's\" 4\n8 '\\n\\n' 2\n"
    "9 '\\'\"' 2\n10 'é\\t' 3\n"
)
"""A vocabulary file of RWKV."""
SPECIALS = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")


@functools.cache
def corpus():
    """Lines to train on."""
    import pydoc_data.topics

    lines = [
        line for name in sorted(pydoc_data.topics.topics)[:30] for line in pydoc_data.topics.topics[name].split("\n")
    ]
    return [*lines, *SAMPLE * 4]


@functools.cache
def byte_bpe(pattern, size=700, whole=False, prefix=False):
    """A byte-level BPE of the tokenizers library that splits by a pattern first."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(ignore_merges=whole))
    split = [pre_tokenizers.Split(Regex(one), "isolated") for one in pattern] if pattern else []
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [*split, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=not pattern)]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(corpus(), trainer)
    return made


@functools.cache
def sentencepiece(kind="bpe", size=600, **options):
    """A SentencePiece model, as the bytes of its file."""
    import sentencepiece as spm

    out = io.BytesIO()
    settings = {
        "byte_fallback": True,
        "character_coverage": 0.98,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    }
    lines = iter([line.replace("\0", "") for line in corpus()])
    spm.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=out,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **settings | options,
    )
    return out.getvalue()


def gguf_tokenizer(metadata):
    """Our tokenizer of GGUF metadata."""
    return read(cc.Graph(metadata={f"tokenizer.ggml.{key}": value for key, value in metadata.items()}))


def file_tokenizer(files):
    """Our tokenizer of files beside weights."""
    held = {name: Held(content if isinstance(content, bytes) else content.encode()) for name, content in files.items()}
    return read(cc.Graph(attachments=held))


def bpe_metadata(library, pre):
    """GGUF metadata of a byte-level BPE."""
    said = json.loads(library.to_str())
    ids = library.get_vocab()
    tokens = sorted(ids, key=ids.get)
    kinds = np.array([3 if token in SPECIALS else 1 for token in tokens], np.int32)
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in said["model"]["merges"]]
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": kinds,
        "merges": merges,
        "add_bos_token": False,
    }


def library_json():
    """A tokenizer.json of byte-level BPE, as an object."""
    return json.loads(byte_bpe(()).to_str())


def wordpiece():
    """BERT's kind of tokenizer, of the library."""
    import tokenizers

    made = tokenizers.BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator(corpus(), vocab_size=600, show_progress=False)
    return made


def told_alike(text):
    """Whether llama.cpp's WordPiece and the library's agree on a text: not on Korean, scripts of India, odd control
    characters."""
    return not any(
        "\u0900" < letter < "\u0e80" or "\uac00" < letter < "\ud7ff" or letter in "\x1f\x85" for letter in text
    )
