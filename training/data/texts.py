"""Texts: files become tokens, and tokens become rows of inputs and next tokens for language models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.base.errors import FileAccessError, FormatError, UsageError
from ...runtime.base.units import counted
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import made
from .dataset import Stacked

SUFFIXES = frozenset((".txt", ".md", ".rst", ".py"))
"""Of the files that are read where a folder is given."""


class Vocabulary:
    """Tokens that are the characters of a text, in the order of their code points.

    Args:
        text: any text; characters that are not in it cannot be encoded.

    Attributes:
        characters: the tokens; the number of a token is its position.
    """

    def __init__(self, text: Iterable[str]) -> None:
        self.characters = "".join(sorted(set(text)))
        self._places = {each: index for index, each in enumerate(self.characters)}

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> list[int]:
        """The numbers of the characters; UsageError for a character that is not a token."""
        try:
            return [self._places[each] for each in text]
        except KeyError as error:
            raise UsageError("E-DATA-TOKEN", None, f"{error.args[0]!r} is not in the vocabulary") from None

    def decode(self, tokens: Iterable[int]) -> str:
        """The characters of numbers."""
        return "".join([self.characters[int(token)] for token in tokens])


class TokenDataset(Stacked):
    """Rows of a sequence of tokens: item i is `length` tokens, and the `length` tokens that follow each of them.

    Args:
        tokens: numbers of tokens.
        length: tokens of a row.
        stride: tokens from one row to the next; 1 for all rows that there are, None for rows side by side.

    Raises UsageError if there are not enough tokens for a row.
    """

    def __init__(self, tokens: Sequence[int] | np.ndarray, length: int, stride: int | None = None) -> None:
        self.tokens = np.asarray(tokens, np.int64)
        self.length = length
        self.stride = length if stride is None else stride
        if length < 1 or self.stride < 1 or len(self.tokens) <= length:
            given = counted(len(self.tokens), "token", verb="does")
            why = f"{given} not fill a row of {counted(length, 'token')} and its next one"
            raise UsageError("E-DATA-LENGTH", None, why, hint="Take a longer text, or shorter rows")

    @classmethod
    def from_files(
        cls, path: str | os.PathLike[str], tokenizer: Any, length: int, stride: int | None = None
    ) -> TokenDataset:
        """Rows of a file of text, or of all below a folder.

        Args:
            tokenizer: has ``encode``, or is a function that makes numbers of a text.
        """
        encode: Callable[[str], Any] = getattr(tokenizer, "encode", tokenizer)
        tokens: list[int] = []
        for each in files_of_text(path):
            found = encode(text_of(each))
            tokens += getattr(found, "ids", found)
        return cls(tokens, length, stride)

    def __len__(self) -> int:
        return (len(self.tokens) - self.length - 1) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        row, following = self.batch([index % len(self)])
        return row[0], following[0]

    def batch(self, indices: Sequence[int]) -> list[Tensor]:
        """Several rows, and what follows: i64 [rows, length] each."""
        positions = np.asarray(indices, np.int64)[:, None] * self.stride + np.arange(self.length)
        return [made(self.tokens[positions]), made(self.tokens[positions + 1])]


def files_of_text(path: str | os.PathLike[str]) -> list[Path]:
    """A file, or the files of text below a folder in alphabetical order; FileAccessError if there are none."""
    root = Path(path)
    if root.is_file():
        return [root]
    found = sorted(each for each in root.rglob("*") if each.suffix.lower() in SUFFIXES and each.is_file())
    if not found:
        raise FileAccessError("E-DATA-FOLDER", root, "is neither a file nor a folder with files of text")
    return found


def text_of(path: str | os.PathLike[str]) -> str:
    """The text of a file in UTF-8; FormatError if it is not that."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("E-DATA-TEXT", path, "is not UTF-8", at=error.start) from None
