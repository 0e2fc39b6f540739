"""Text corpora: tokenized and cut into chunks of equal length, to evaluate language models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.system_error import read_error
from ...runtime.base.units import counted

if TYPE_CHECKING:
    import numpy as np

    from ...models.tokenizer import Tokenizer

SHORTEST = 16
"""Tokens of a piece, at least."""


def pieces(
    tokenizer: Tokenizer, paths: Sequence[str], context: int, count: int | None = None, *, special: bool = False
) -> list[np.ndarray]:
    """The ids of texts one after another, int64, in pieces of `context`; a shorter remainder is dropped.

    As llama.cpp's tools have it: one newline at the end of a file does not count, and where the model wants a text to
    begin with BOS, that replaces each piece's first token.

    Args:
        count: pieces at most.
        special: whether the special tokens that stand in a text are taken for such.
    """
    import numpy

    if context < SHORTEST:
        raise UsageError(
            "E-EVAL-CONTEXT", None, f"pieces of {context} tokens are too short", expected=f"at least {SHORTEST}"
        )
    ids = numpy.array(tokenizer.encode("".join(map(_text, paths)), special=special, add_eos=False), numpy.int64)
    if len(ids) < 2 * context:
        hint = f"Use a longer text, or --context {max(SHORTEST, len(ids) // 2)}"
        why = f"gives {counted(len(ids), 'token')}"
        raise UsageError("E-EVAL-TEXT", paths[0], why, expected=f"at least {2 * context:,}", hint=hint)
    whole = ids[: len(ids) // context * context].reshape(-1, context)[:count]
    if tokenizer.opening:
        whole[:, 0] = tokenizer.opening[0]
    return list(whole)


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode().removesuffix("\n")
    except OSError as error:
        raise read_error(path, error) from error
    except UnicodeDecodeError as error:
        raise FormatError(
            "E-EVAL-UTF8", path, "is not valid UTF-8", at=error.start, hint="Use a plain text file"
        ) from error
