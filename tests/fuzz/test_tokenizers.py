"""Tokenizer files changed at random within their structure: tokenizer.json, what stands beside it, SentencePiece
models, GGUF keys."""

import base64
import copy
import functools
import json
import struct

from candle_convert.models.tokenizer.core.vocabulary import BYTE_LETTERS
from candle_convert.tests.builders.gguf_files import Maker
from candle_convert.tests.builders.tiny_llama import TOKENS
from candle_convert.tests.fuzz.harness import Case, sweep

TEXT = "Hello <s> wörld,\n\n  abc abcabcabcabcabcabcabcabcabcabcabcabc 12345 </s>"
INTEGERS = (
    -1,
    0,
    1,
    2,
    255,
    256,
    65535,
    1 << 24,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 53,
    1 << 64,
    -(1 << 63),
    10**40,
)
SCALARS = (
    *INTEGERS,
    0.5,
    -0.0,
    1e308,
    None,
    True,
    False,
    "",
    "a",
    "<unk>",
    "\0",
    "\ufffd",
    "\u202e",
    "x" * 5000,
    [],
    {},
    [[]],
    {"a": {}},
    ["a", 1],
)
PATTERNS = (
    "(a|a)*b",
    "(([a-z]+)+)+!",
    "a*a*a*a*b",
    "(.*)*x",
    "(?=(a+)+)b",
    r"(\w+)\1+!",
    "",
    "(",
    "(" * 300 + ")" * 300,
    "(a{1000}){1000}",
    r"\p{L}+",
    "(?<!a)b",
    "[^a]|.",
    r"\G",
    r"(?<n>a)\g<n>*",
    "(?:)*",
    "^",
    "$|^",
    r"\X+",
    "(?i)ß",
)
MAPS = (
    "",
    "AAAA",
    "BAAAAP////9h",
    "BAAAAAAAAAA=",
    "/////wAAAAAAAAA=",
    base64.b64encode(struct.pack("<I", 1024) + bytes(range(256)) * 5).decode(),
)


def pattern(draw):
    return {"Regex": draw.choice(PATTERNS)} if draw.random() < 0.6 else {"String": draw.choice(("a", " ", "", "ab"))}


def split(draw):
    behavior = draw.choice(("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"))
    return {"type": "Split", "pattern": pattern(draw), "behavior": behavior, "invert": draw.random() < 0.3}


def replace(draw):
    return {"type": "Replace", "pattern": pattern(draw), "content": draw.choice(("", "b", "aaaa", "a" * 1000))}


def special(name):
    return {"SpecialToken": {"id": name, "type_id": 0}}


def template(draw):
    sequence = {"Sequence": {"id": draw.choice("AB"), "type_id": draw.choice((0, 1, 1 << 31))}}
    row = [draw.choice((sequence, special("<s>"), special("</s>"), special("none"))) for _ in range(draw.randint(0, 4))]
    tokens = {
        name: {"id": name, "ids": [draw.choice((0, 1, 2, 999))] * draw.randint(0, 3), "tokens": [name]}
        for name in ("<s>", "</s>")
    }
    return {"type": "TemplateProcessing", "single": row, "pair": [*row, *row], "special_tokens": tokens}


NORMALIZERS = (
    replace,
    lambda draw: {"type": draw.choice(("NFC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"))},
    lambda draw: {"type": "Precompiled", "precompiled_charsmap": draw.choice(MAPS)},
    lambda draw: {"type": "Prepend", "prepend": draw.choice(("▁", "", "a" * 100))},
    lambda draw: {"type": "Strip", "strip_left": True, "strip_right": draw.choice((True, 1))},
    lambda draw: {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    lambda draw: {"type": "Sequence", "normalizers": [replace(draw)] * draw.randint(0, 12)},
)
PRE_TOKENIZERS = (
    split,
    lambda draw: {
        "type": "ByteLevel",
        "add_prefix_space": draw.random() < 0.5,
        "trim_offsets": True,
        "use_regex": draw.random() < 0.5,
    },
    lambda draw: {
        "type": "Metaspace",
        "replacement": draw.choice(("▁", "", "ab")),
        "prepend_scheme": draw.choice(("always", "first", "never", "x")),
    },
    lambda draw: {"type": draw.choice(("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts"))},
    lambda draw: {"type": "Digits", "individual_digits": True},
    lambda draw: {"type": "Punctuation", "behavior": "Isolated"},
    lambda draw: {"type": "FixedLength", "length": draw.choice((0, 1, 1 << 40))},
    lambda draw: {"type": "CharDelimiterSplit", "delimiter": draw.choice(("a", "", "ab"))},
    lambda draw: {"type": "Sequence", "pretokenizers": [split(draw) for _ in range(draw.randint(0, 4))]},
)
PROCESSORS = (
    template,
    lambda draw: {"type": "Sequence", "processors": [template(draw)] * draw.randint(0, 20)},
    lambda draw: {
        "type": "RobertaProcessing",
        "sep": ["</s>", draw.choice((2, 1 << 31))],
        "cls": ["<s>", 0],
        "trim_offsets": True,
        "add_prefix_space": True,
    },
    lambda draw: {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["none", draw.choice((1, -1))]},
    lambda draw: {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": draw.random() < 0.5,
        "use_regex": True,
    },
)
DECODERS = (
    replace,
    lambda draw: {"type": draw.choice(("ByteFallback", "Fuse", "ByteLevel"))},
    lambda draw: {"type": "WordPiece", "prefix": draw.choice(("##", "")), "cleanup": True},
    lambda draw: {
        "type": "Strip",
        "content": draw.choice(("a", "", "ab")),
        "start": draw.choice(INTEGERS),
        "stop": draw.choice((0, 1, 1 << 40)),
    },
    lambda draw: {"type": "CTC", "pad_token": "<s>", "word_delimiter_token": "|", "cleanup": True},
    lambda draw: {"type": "BPEDecoder", "suffix": draw.choice(("", "</w>"))},
    lambda draw: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    lambda draw: {"type": "Sequence", "decoders": [replace(draw)] * draw.randint(0, 12)},
)
PARTS = {"normalizer": NORMALIZERS, "pre_tokenizer": PRE_TOKENIZERS, "post_processor": PROCESSORS, "decoder": DECODERS}
OTHERS = ("ab", "abc", "##a", "##b", "[UNK]", "[CLS]", "[SEP]", "▁", "▁a")
LETTERS = ["<unk>", "<s>", "</s>", *BYTE_LETTERS.values(), *OTHERS, *(f"<0x{byte:02X}>" for byte in range(256))]
IDS = {text: token for token, text in enumerate(dict.fromkeys(LETTERS))}


def model(draw):
    kind = draw.choice(("BPE", "BPE", "WordPiece", "WordLevel", "Unigram"))
    if kind == "Unigram":
        rows = [[text, -float(token)] for text, token in IDS.items()]
        return {"type": kind, "unk_id": draw.choice((0, 0, None, 5)), "vocab": rows, "byte_fallback": True}
    if kind == "BPE":
        flags = {name: draw.random() < 0.3 for name in ("fuse_unk", "byte_fallback", "ignore_merges")}
        affixes = {
            "continuing_subword_prefix": draw.choice((None, "", "##")),
            "end_of_word_suffix": draw.choice((None, "", "</w>")),
        }
        merges = [["a", "b"], ["ab", "c"]]
        return {
            "type": kind,
            "dropout": None,
            "unk_token": draw.choice((None, "<unk>", "none")),
            **affixes,
            **flags,
            "vocab": IDS,
            "merges": merges,
        }
    unknown = {"type": kind, "unk_token": draw.choice(("[UNK]", "[UNK]", "none")), "vocab": IDS}
    longest = {"continuing_subword_prefix": "##", "max_input_chars_per_word": draw.choice((100, 100, 0, 1 << 40))}
    return unknown if kind == "WordLevel" else unknown | longest


def whole(draw):
    """A tokenizer.json of parts that are drawn."""
    added = [
        {
            "id": token,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, text in enumerate(("<unk>", "<s>", "</s>"))
    ]
    parts = {name: draw.choice(choices)(draw) if draw.random() < 0.6 else None for name, choices in PARTS.items()}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts, "model": model(draw)}


def places(value, found=None):
    """Every container of a JSON value with each of its keys; few of a long one."""
    found = [] if found is None else found
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in [*keys[:4], *keys[-4:]] if len(keys) > 8 else keys:
        found.append((value, key))
        places(value[key], found)
    return found


def damaged(value, draw):
    """The value with a few places changed, deleted or doubled."""
    made = copy.deepcopy(value)
    for _ in range(draw.choice((0, 1, 1, 2, 4))):
        known = places(made)
        if not known:
            break
        holder, key = draw.choice(known)
        how = draw.randrange(5)
        if how == 0:
            del holder[key]
        elif how == 1:
            other, place = draw.choice(known)
            holder[key] = (
                copy.deepcopy(other[place])
                if not isinstance(other[place], dict | list) or len(other[place]) < 20
                else None
            )
        elif how == 2 and isinstance(holder, list):
            holder += [holder[key]] * draw.choice((1, 50))
        elif how == 3 and isinstance(holder[key], int):
            holder[key] = draw.choice(INTEGERS)
        else:
            holder[key] = copy.deepcopy(draw.choice(SCALARS))
    return made


CONFIG = {
    "bos_token": "<s>",
    "eos_token": {"content": "</s>"},
    "unk_token": "<unk>",
    "add_bos_token": True,
    "model_max_length": 10**30,
    "tokenizer_class": "LlamaTokenizer",
    "chat_template": "{{ messages }}",
    "added_tokens_decoder": {"0": {"content": "<unk>", "special": True}, "700": {"content": "<new>", "special": False}},
}
BESIDE = {
    "tokenizer_config.json": CONFIG,
    "special_tokens_map.json": {"pad_token": "</s>", "additional_special_tokens": ["<new>"]},
    "added_tokens.json": {"<more>": 701},
    "generation_config.json": {"eos_token_id": [2, 3]},
    "config.json": {"model_type": "llama", "eos_token_id": 2},
}


def text_of(value, draw):
    text = json.dumps(value, ensure_ascii=draw.random() < 0.5)
    if draw.random() < 0.1:
        place = draw.randrange(len(text))
        text = (
            text[:place]
            + draw.choice(("", "}", '"', ",", "\\", "[" * 5000, "9" * 5000))
            + text[place + draw.randint(0, 3) :]
        )
    return text.encode("utf-8", "surrogatepass")


def around(draw):
    return {name: text_of(damaged(content, draw), draw) for name, content in BESIDE.items() if draw.random() < 0.4}


def actions(name):
    place = f"{{dir}}/{name}"
    return [
        ("tokenizer", "show", place),
        ("tokenizer", "encode", place, TEXT),
        ("tokenizer", "decode", place, "0", "5", "300", "258"),
        ("tokenizer", "roundtrip", place),
        ("tokenizer", "export", place, "{out}/v.gguf"),
    ]


def library_case(draw):
    return Case(
        {"tokenizer.json": text_of(damaged(whole(draw), draw), draw), **around(draw)}, actions("tokenizer.json")
    )


def varint(number):
    found = []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def field(number, value):
    """A protobuf field: an integer, or bytes."""
    return (
        varint(number << 3) + varint(value)
        if isinstance(value, int)
        else varint(number << 3 | 2) + varint(len(value)) + value
    )


LETTER_PIECES = [*((chr(97 + place), 1) for place in range(26)), ("\u2581", 1), ("ab", 4)]
PIECES = [("<unk>", 2), ("<s>", 3), ("</s>", 3), *((f"<0x{byte:02X}>", 6) for byte in range(256)), *LETTER_PIECES]


@functools.cache
def sentencepiece_rows():
    return [
        field(1, field(1, text.encode()) + struct.pack("<Bf", 21, -float(token)) + field(3, kind))
        for token, (text, kind) in enumerate(PIECES)
    ]


def sentencepiece_case(draw):
    rows = list(sentencepiece_rows())
    trainer = field(
        2,
        b"".join(
            (field(3, draw.choice((1, 2, 2, 9))), field(35, draw.randrange(2)), field(40, draw.choice((0, 5, 1 << 33))))
        ),
    )
    charsmap = base64.b64decode(draw.choice(MAPS)) if draw.random() < 0.4 else b""
    rows += [trainer, field(3, field(2, charsmap) + field(3, draw.randrange(2)) + field(4, draw.randrange(2)))]
    for _ in range(draw.choice((0, 1, 3))):
        place = draw.randrange(len(rows))
        rows[place] = draw.choice(
            (
                b"",
                rows[place] * 2,
                field(1, b""),
                field(1, field(1, b"")),
                field(1, field(1, b"\xff\xfe")),
                rows[place][:-1],
            )
        )
    data = bytearray(b"".join(rows))
    for _ in range(draw.choice((0, 0, 1, 5))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    name = draw.choice(("tokenizer.model", "spiece.model"))
    return Case({name: bytes(data), **around(draw)}, actions(name))


def several_case(draw):
    """A vocabulary in files of its own."""
    kind = draw.choice(("vocab.json", "vocab.txt", "tekken.json", "a.tiktoken", "rwkv_vocab_x.txt", "tokenizer.bin"))
    if kind == "vocab.json":
        merges = "#version: 0.2\na b\nab c\n" + draw.choice(("", "x y z\n", "q q\n", "a", "\n" * 10))
        files = {kind: text_of(damaged(IDS, draw), draw), "merges.txt": merges.encode()}
    elif kind == "vocab.txt":
        lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "ab", *("x" for _ in range(draw.choice((0, 3))))]
        draw.shuffle(lines)
        files = {kind: "\n".join(lines[: draw.randint(0, len(lines))]).encode()}
    elif kind == "tekken.json":
        vocab = [
            {"rank": byte, "token_bytes": base64.b64encode(bytes((byte,))).decode(), "token_str": None}
            for byte in range(256)
        ]
        sizes = {
            "default_vocab_size": draw.choice((276, 1 << 24, 300)),
            "default_num_special_tokens": draw.choice((20, 1 << 23)),
        }
        config = {"pattern": draw.choice(PATTERNS), **sizes}
        files = {kind: text_of(damaged({"config": config, "vocab": vocab}, draw), draw)}
    elif kind == "a.tiktoken":
        rows = [
            b"%b %d" % (base64.b64encode(bytes((byte,))), draw.choice((byte,) * 400 + INTEGERS)) for byte in range(256)
        ]
        files = {kind: b"\n".join(rows)}
    elif kind == "rwkv_vocab_x.txt":
        rows = [f"{token} {chr(96 + token)!r} 1" for token in range(1, 20)]
        rows[draw.randrange(19)] = draw.choice(
            ("9999999 'x' 1", "5 b'\\xff' 1", "5 '\\ud800' 3", "5 '''' 1", "5 'a' 99999", "", "x")
        )
        files = {kind: "\n".join(rows).encode()}
    else:
        tokens = [b"<unk>", b"\n<s>\n", b"\n</s>\n", b"a", b"b", b""]
        rows = [struct.pack("<fi", -1.0, draw.choice((len(token),) * 9 + (-1, 1 << 30))) + token for token in tokens]
        files = {kind: struct.pack("<i", 7) + b"".join(rows)}
    return Case({**files, **around(draw)}, actions(kind))


COUNT = len(TOKENS)
KEYS = {
    "model": ("string", "llama"),
    "tokens": ("string", TOKENS),
    "scores": ("f32", [-float(token) for token in range(COUNT)]),
    "token_type": ("i32", [2, 3, 3, *[6] * 256, *[1] * (COUNT - 259)]),
    "pre": ("string", "default"),
    "bos_token_id": ("u32", 1),
    "eos_token_id": ("u32", 2),
    "unknown_token_id": ("u32", 0),
    "add_bos_token": ("bool", 1),
    "merges": ("string", ["a b", "ab c"]),
    "add_space_prefix": ("bool", 1),
    "precompiled_charsmap": ("u8", []),
    "remove_extra_whitespaces": ("bool", 0),
    "token_type_count": ("u32", 2),
}
"""By key: its type, and its value or the elements of an array."""
VALUES = (
    ("u32", 0),
    ("u32", (1 << 32) - 1),
    ("i64", -1),
    ("u64", (1 << 64) - 1),
    ("f32", float("nan")),
    ("bool", 1),
    ("string", ""),
    ("string", "x"),
    ("string", ["a"]),
    ("string", ["", ""]),
    ("f32", [0.0] * 3),
    ("f32", [float("nan")] * COUNT),
    ("f32", [float("inf")] * COUNT),
    ("i32", [6] * COUNT),
    ("i32", [-7] * COUNT),
    ("i32", [4] * COUNT),
    ("u8", list(range(9))),
    ("string", [""] * COUNT),
    ("string", ["a"] * COUNT),
    ("string", ["a b"] * 5),
    ("string", [" ", "a", "\u2581", "a  b"]),
    ("i32", [3] * COUNT),
    ("string", [b"\xff\xfe", "a"] * (COUNT // 2)),
)


def gguf_case(draw):
    keys = dict(
        KEYS, model=("string", draw.choice(("llama", "gpt2", "t5", "bert", "rwkv", "gemma4", "whitespace", "none")))
    )
    keys["pre"] = ("string", draw.choice(("default", "llama-bpe", "qwen2", "none")))
    for _ in range(draw.choice((0, 1, 2, 4))):
        name = draw.choice(list(keys))
        if draw.random() < 0.3:
            del keys[name]
        else:
            keys[name] = draw.choice(VALUES)
    maker = Maker()
    rows = [(f"tokenizer.ggml.{key}", *row) for key, row in keys.items()]
    pairs = [
        maker.array(key, kind, value) if isinstance(value, list) else maker.pair(key, kind, value)
        for key, kind, value in rows
    ]
    return Case({"m.gguf": maker.file(pairs)}, [*actions("m.gguf"), ("check", "{dir}/m.gguf")])


def test_tokenizer_json(full):
    sweep(library_case, full, count=6)


def test_sentencepiece_models(full):
    sweep(sentencepiece_case, full, count=4)


def test_vocabularies_in_several_files(full):
    sweep(several_case, full, count=4)


def test_gguf_keys(full):
    sweep(gguf_case, full, count=4)
