"""Parsing of llama-quantize's options to plain data."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.base.system_error import read_error

LONGEST_FILE = 16 * 2**20
BOOLS = {"true": True, "false": False}


def pattern(text: str) -> str:
    """A pattern of ``--tensor-type``; tensor names are in lower case, so capitals outside of escapes are taken for
    small letters."""
    letters, escaped = [], False
    for letter in text:
        letters.append(letter if escaped else letter.lower())
        escaped = letter == "\\" and not escaped
    return "".join(letters)


def pairs_in(path: str) -> list[tuple[str, str]]:
    """The ``RE=TYPE`` pairs of a file, separated by white space."""
    try:
        with open(path, encoding="utf-8") as file:
            words = file.read(LONGEST_FILE).split()
    except OSError as error:
        raise read_error(path, error, "E-IO-OPEN") from error
    except UnicodeDecodeError as error:
        raise UsageError("E-OPTION", path, "is not text", hint="One RE=TYPE per line") from error
    pairs = []
    for word in words:
        left, equals, right = word.rpartition("=")
        if not equals or not left or not right:
            raise UsageError("E-OPTION", path, f"{word[:80]!r} is not of the form RE=TYPE", hint="One RE=TYPE per line")
        pairs.append((left, right))
    return pairs


def layers(text: str | None) -> tuple[int, ...]:
    """Block numbers from ``3,5,7``."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 9)]
    if wrong:
        raise UsageError(
            "E-OPTION", None, f"{wrong[0]!r} is not a block number", hint="Example: --prune-layers 20,21,22"
        )
    return tuple(sorted({int(word) for word in words}))


def override(text: str) -> tuple[str, Any]:
    """Key and value from ``KEY=TYPE:VALUE``, the value as a GGUF type: u32 (i64 for what it cannot hold), f32, bool or
    string."""
    import numpy

    key, equals, rest = text.partition("=")
    kind, colon, value = rest.partition(":")
    if not (key and equals and colon):
        why = f"{text!r} is not of the form KEY=TYPE:VALUE"
        raise UsageError("E-OPTION", None, why, hint="Example: llama.context_length=int:4096")
    try:
        if kind == "int":
            number = int(value)
            return key, numpy.uint32(number) if 0 <= number < 1 << 32 else numpy.int64(number)
        if kind == "float":
            return key, numpy.float32(float(value))
        if kind == "bool":
            return key, BOOLS[value]
    except (ValueError, KeyError, OverflowError) as error:
        raise UsageError(
            "E-OPTION", None, f"{value!r} is not a valid {kind}", hint="int:7, float:0.5, bool:true, str:text"
        ) from error
    if kind != "str":
        raise UsageError("E-OPTION", None, f"{kind!r} is not a type", hint="Types: int, float, bool, str")
    return key, value
