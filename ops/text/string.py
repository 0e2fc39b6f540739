"""RegexFullMatch, StringConcat, StringNormalizer, StringSplit; independent of the locale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.base.process_cache import process_cache
from ...runtime.ir.graph import Dim
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import BOOL, I64, STRING
from ..rules.axes import input_error
from ..rules.output_limit import allowed
from ..rules.shape_rules import broadcast
from .regex_compile import PatternError, compiled
from .regex_match import Matcher

ADDRESS = 8
"""Bytes of a reference to a string in an array of objects."""


@process_cache(maxsize=64)
def _program(pattern: str) -> Matcher:
    return Matcher(compiled(pattern))


def infer_regex_full_match(node: Inference) -> None:
    """A boolean for each text."""
    pattern = node.attributes["pattern"]
    if pattern is not None:
        try:
            _program(pattern)
        except PatternError as error:
            node.fail(f"the pattern is not valid: {error}")
    node.set(0, BOOL, node.shape(0))


MAILS = np.array([["a.b@c.com", "x@y"], ["", "A@B.ORG"]], object)


@op(
    "RegexFullMatch",
    since=20,
    types="string",
    infer=infer_regex_full_match,
    examples=[
        case(MAILS, pattern=r"[\w.]+@(\w+\.)+(com|org)"),
        case(MAILS, pattern=r"(?i)[a-z.]+@[a-z.]+"),
        case(MAILS, pattern=""),
        case("string[0,2]", pattern="x"),
    ],
)
def regex_full_match(x: np.ndarray, *, pattern: str | None = None) -> np.ndarray:
    """Whether the pattern, of RE2's syntax, matches the whole of each text; in time linear in the text, whatever the
    pattern."""
    if pattern is None:
        raise input_error("RegexFullMatch", "it has no pattern", "E-OP-ATTRIBUTE")
    try:
        program = Matcher(_program(pattern).program)
    except PatternError as error:
        raise input_error("RegexFullMatch", f"the pattern is not valid: {error}", "E-OP-ATTRIBUTE") from error
    return np.array([program.matches(text) for text in x.reshape(-1).tolist()], bool).reshape(x.shape)


def infer_string_concat(node: Inference) -> None:
    """Strings of the shape that both inputs broadcast to."""
    node.set(0, STRING, broadcast(node.shape(0), node.shape(1)))


@op(
    "StringConcat",
    since=20,
    types="string string",
    infer=infer_string_concat,
    examples=[case("string[2,3]", "string[3]"), case("string[2,1]", "string[1,3]"), case("string[0]", "string[1]")],
)
def string_concat(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The strings of `x`, each followed by that of `y`."""
    return np.asarray(np.add(x.astype(object), y.astype(object)), object)


def _each(text: str, change: str) -> str:
    """Letter by letter, where the other case is one letter: as the C library does it."""
    changed = [letter.lower() if change == "LOWER" else letter.upper() for letter in text]
    return "".join(new if len(new) == 1 else old for new, old in zip(changed, text, strict=True))


def infer_string_normalizer(node: Inference) -> None:
    """One string for each word that is left, at least one."""
    shape = node.shape(0)
    if shape is not None and (
        len(shape) not in (1, 2) or (len(shape) == 2 and isinstance(shape[0], int) and shape[0] != 1)
    ):
        node.fail(f"the input is of shape {list(shape)}, not [C] or [1, C]")
    words = node.attributes["stopwords"]
    last: Dim = None if shape is None or words or shape[-1] == 0 else shape[-1]
    node.set(0, STRING, None if shape is None else (last,) if len(shape) == 1 else (1, last))


DAYS = np.array(["monday", "Tuesday", "WEDNESDAY"], object)


@op(
    "StringNormalizer",
    since=10,
    types="string",
    infer=infer_string_normalizer,
    examples=[
        case(DAYS, case_change_action="UPPER", stopwords=["monday"], is_case_sensitive=1),
        case(DAYS, case_change_action="LOWER", stopwords=["MONDAY"]),
        case(DAYS.reshape(1, 3), stopwords=DAYS.tolist(), is_case_sensitive=1),
        case(DAYS, locale="en_US"),
    ],
)
def string_normalizer(
    x: np.ndarray,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] | None = None,
) -> np.ndarray:
    """[C] or [1, C] strings without the stop words, in lower or upper case; one empty string if none is left. `locale`
    has no influence."""
    if (
        x.ndim not in (1, 2)
        or (x.ndim == 2 and x.shape[0] != 1)
        or case_change_action not in ("NONE", "LOWER", "UPPER")
    ):
        why = "the input is not [C] or [1, C], or the case action is unknown"
        raise input_error("StringNormalizer", why, found=f"{list(x.shape)}, {case_change_action}")
    words = set(stopwords or ()) if is_case_sensitive else {_each(word, "LOWER") for word in stopwords or ()}
    left = [
        text for text in x.reshape(-1).tolist() if (text if is_case_sensitive else _each(text, "LOWER")) not in words
    ]
    if case_change_action != "NONE":
        left = [_each(text, case_change_action) for text in left]
    return np.array(left or [""], object).reshape((1, -1) if x.ndim == 2 else -1)


def infer_string_split(node: Inference) -> None:
    """One more axis of unknown length, and a number for each text."""
    shape = node.shape(0)
    node.set(0, STRING, None if shape is None else (*shape, None))
    node.set(1, I64, shape)


@op(
    "StringSplit",
    since=20,
    types="string -> 2",
    infer=infer_string_split,
    examples=[
        case(np.array(["a b c", "  d  ", ""], object), outputs=2),
        case(np.array(["a,b,,c", "d"], object), delimiter=",", outputs=2),
        case(np.array([["a.b.c"], ["d"]], object), delimiter=".", maxsplit=1, outputs=2),
        case("string[0]", delimiter=",", outputs=2),
    ],
)
def string_split(
    x: np.ndarray, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Parts of each string, padded with empty strings, and their counts; split at runs of white space without a
    delimiter."""
    limit = -1 if maxsplit is None else maxsplit
    found = [text.split(delimiter or None, limit) for text in x.reshape(-1).tolist()]
    counts = np.array([len(pieces) for pieces in found], np.int64)
    longest = int(counts.max(initial=0))
    result = np.empty(allowed((len(found), longest), ADDRESS, "StringSplit"), object)
    for row, pieces in zip(result, found, strict=True):
        row[:] = [*pieces, *[""] * (longest - len(pieces))]
    return result.reshape((*x.shape, longest)), counts.reshape(x.shape)
