r"""RWKV's vocabulary file: on each line an id, a Python literal (``'the'``, ``b'\xff'``) and the number of its bytes.

Source: RWKV's rwkv_vocab_v20230424.txt and its tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....runtime.base.errors import FormatError
from ..algorithm.greedy_longest import Longest
from ..core.special_split import Leftmost
from ..core.tokenizer import ByteEngine, Tokenizer
from ..core.vocabulary import CONTROL, NORMAL, Vocabulary, escaped, escaped_bytes

CODE = "E-TOKENIZER-RWKV"
LINE = re.compile(r"(\d{1,7}) (b?)(['\"])(.*)\3 (\d{1,5})\r?", re.DOTALL)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
LETTERS = {
    "t": "\t",
    "n": "\n",
    "r": "\r",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "0": "\0",
}
START = "<s>"
"""Token 0, which the file omits."""
TEMPLATE = (
    "{#- rwkv-world -#}{{- bos_token -}}"
    "{%- for message in (messages | selectattr('role', 'equalto', 'system') | list)[-1:] -%}"
    "{{- 'System: ' + message['content'] + '\\n\\n' -}}{%- endfor -%}"
    "{%- for message in messages if message['role'] in ('user', 'assistant') and message['content'] is not none -%}"
    "{{- message['role'] | capitalize + ': ' + message['content'].split('</think>')[-1] | trim + '\\n\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt is not defined or add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}"
)
"""Chat template of World models, if no file states one; llama.cpp knows it by its name."""


def from_rwkv(text: str, templates: Mapping[str, str], path: str | None = None) -> Tokenizer:
    """The tokenizer of a vocabulary file."""
    vocabulary = Vocabulary(*parsed(text, path), roles={"eos": 0, "bos": 0}, ends=frozenset((0,)))
    engine = ByteEngine(
        vocabulary, escaped_bytes, Longest(vocabulary, escaped_bytes), Leftmost(((START, 0),)), Leftmost(())
    )
    return Tokenizer(vocabulary, engine, templates=templates or {"default": TEMPLATE}, origin="RWKV vocabulary")


def parsed(text: str, path: str | None = None) -> tuple[list[str], list[int]]:
    """Token strings as GGUF files write them, and token types. FormatError for invalid lines and ids out of order."""
    texts, kinds = [START], [CONTROL]
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        match = LINE.fullmatch(line)
        data = _literal(match[4], bool(match[2])) if match else None
        if match is None or data is None or len(data) != int(match[5]):
            raise FormatError(CODE, path, f"line {number} is not a token with its id and length")
        if int(match[1]) != len(texts):
            raise FormatError(
                CODE, path, f"line {number} has not the next id", expected=len(texts), found=int(match[1])
            )
        texts.append(escaped(data))
        kinds.append(NORMAL)
    return texts, kinds


def _literal(text: str, raw: bool) -> bytes | None:
    """The bytes of what stands between quotes; None where an escape is unknown."""
    parts, at = [], 0
    for match in ESCAPE.finditer(text):
        parts.append(text[at : match.start()].encode())
        code = match[1] or match[2] or match[3]
        if code:
            value = int(code, 16)
            if value > 0x10FFFF or 0xD800 <= value < 0xE000:
                return None
            parts.append(bytes((value,)) if raw else chr(value).encode())
        elif match[4] in LETTERS:
            parts.append(LETTERS[match[4]].encode())
        else:
            return None
        at = match.end()
    return b"".join([*parts, text[at:].encode()])
