"""CLIP's byte-level BPE vocabulary (Radford et al. 2021, arXiv:2103.00020) as the files of its tokenizer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

VOCABULARY = 49408
"""Tokens of the only vocabulary that CLIP's text encoders are published with."""
MERGES = "clip_merges.txt.gz"
BEGIN, END = "<|startoftext|>", "<|endoftext|>"
OPEN_CLIP_PAD = "!"
"""Padding of OpenCLIP's encoders after the end of a text; OpenAI's repeat the end."""
WORD_END = "</w>"
CONTEXT = 77


def tokenizer_files(pad: str = END) -> dict[str, str]:
    """vocab.json, merges.txt and tokenizer_config.json of the tokenizer, whose texts are filled with the token
    `pad`."""
    merges = gzip.decompress(Path(__file__).with_name(MERGES).read_bytes()).decode()
    letters = _letters()
    _, *pairs = merges.rstrip("\n").split("\n")
    words = [pair.replace(" ", "") for pair in pairs]
    tokens = [*letters, *(letter + WORD_END for letter in letters), *words, BEGIN, END]
    config = {
        "tokenizer_class": "CLIPTokenizer",
        "bos_token": BEGIN,
        "eos_token": END,
        "unk_token": END,
        "pad_token": pad,
        "model_max_length": CONTEXT,
        "do_lower_case": True,
        "add_prefix_space": False,
    }
    return {
        "vocab.json": json.dumps({token: index for index, token in enumerate(tokens)}, ensure_ascii=False),
        "merges.txt": merges,
        "tokenizer_config.json": json.dumps(config, indent=2),
    }


def _letters() -> list[str]:
    """A printable character for each byte: those that are printable themselves first, the others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [*map(chr, printable), *(chr(256 + n) for n in range(256 - len(printable)))]
