"""Regular expressions from users and files, matched in time linear in the text for every pattern.

RE2 runs them. What RE2 lacks by design (look-around, back references, atomic groups) runs in Python's `re`, in the
child of limited calls, so that a pattern that tries too much ends, too. In RE2 ``\\d``, ``\\w``, ``\\s`` and ``\\b``
are ASCII's, and ``\\p{L}`` is any letter.

Source: github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UsageError
from ..process_cache import process_cache
from ..units import counted
from . import limited_process

if TYPE_CHECKING:
    import re2

LONGEST = 10_000
"""Characters of a pattern."""
MEMORY = 1 << 20
"""Bytes that RE2 may take for a pattern."""
KEPT = 64
"""Patterns that are not compiled again."""
CODE = "E-PATTERN"
MODULE = __name__
HINT = "Write it without look-around, back references and repetitions inside repetitions"
DIFFERENT = "{,"
"""A repetition in Python, and these characters themselves in RE2."""


class Searcher(Protocol):
    """A pattern that is searched in texts."""

    def search(self, text: str, /) -> object: ...


class Pattern:
    """A regular expression.

    Attributes:
        text: as it was written.
    """

    def __init__(self, text: str, engine: re2._Regexp | None) -> None:
        self.text = text
        self._engine = engine

    @property
    def size(self) -> int:
        """Instructions of RE2's program, 0 where Python's engine runs it; compiling takes about a microsecond for
        each."""
        return 0 if self._engine is None else int(self._engine.programsize)

    def search(self, text: str, /) -> bool:
        """Whether it matches anywhere in a text. LimitError where Python's engine has to run it and does not end."""
        return self.among((text,))[0]

    def among(self, texts: Sequence[str]) -> list[bool]:
        """Whether it matches anywhere in each text."""
        if self._engine is None:
            found: list[bool] = limited_process.call(
                MODULE, "searched", {"pattern": self.text, "texts": list(texts)}, _work(self.text)
            )
            return found
        search = self._engine.search
        return [search(text.encode("utf-8", "surrogatepass")) is not None for text in texts]

    def replaced(self, replacement: str, texts: Sequence[str]) -> list[str]:
        """The texts with every match replaced. Python's engine does it, since RE2's way with empty matches is another.

        Args:
            replacement: ``\\1`` and ``\\g<name>`` in it are groups; UsageError where it names others than the pattern
                has.
        """
        places = [index for index, matches in enumerate(self.among(texts)) if matches]
        made = list(texts)
        if places:
            arguments = {"pattern": self.text, "replacement": replacement, "texts": [made[index] for index in places]}
            for index, text in zip(
                places, limited_process.call(MODULE, "substituted", arguments, _work(self.text)), strict=True
            ):
                made[index] = text
        return made


@process_cache(maxsize=KEPT)
def compiled(text: str, linear: bool = False) -> Pattern:
    """The pattern of a text in Python's or RE2's syntax. UsageError for what is neither, or too long.

    Args:
        linear: whether what RE2 lacks is an error, too, as it is for the patterns of files, which may be many.
    """
    if len(text) > LONGEST:
        why = f"a regular expression has {counted(len(text), 'character')}, and {LONGEST:,} are the limit"
        raise UsageError(CODE, None, why, hint="Give several shorter ones")
    engine = None if DIFFERENT in text else _re2(text)
    pattern = Pattern(text, engine)
    if engine is None:
        pattern.among(())
        if linear:
            why = (
                f"{_shown(text)} has look-around, back references or repetitions that take too much, "
                "which are not supported here"
            )
            raise UsageError(CODE, None, why, hint=HINT)
    return pattern


def _re2(text: str) -> re2._Regexp | None:
    """The RE2 form of a pattern, None if RE2 does not support it."""
    import re2

    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, MEMORY
    try:
        return re2.compile(text.encode("utf-8", "surrogatepass"), options)
    except re2.error:
        return None


def _work(pattern: str) -> limited_process.Work:
    return limited_process.Work(CODE, f"the regular expression {_shown(pattern)}", None, HINT)


def _shown(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else f"{pattern[:77]}...")


def searched(arguments: Mapping[str, Any]) -> list[bool]:
    """Whether Python's engine finds ``pattern`` in each of ``texts``; runs in the child process."""
    pattern = _python(arguments["pattern"])
    return [pattern.search(text) is not None for text in arguments["texts"]]


def substituted(arguments: Mapping[str, Any]) -> list[str]:
    """Each of ``texts`` with the matches of ``pattern`` replaced by ``replacement``; runs in the child process."""
    pattern, replacement = _python(arguments["pattern"]), arguments["replacement"]
    try:
        return [pattern.sub(replacement, text) for text in arguments["texts"]]
    except (re.error, IndexError) as error:
        why = f"{_shown(replacement)} is not a replacement for {_shown(pattern.pattern)}: {error}"
        raise UsageError(CODE, None, why, hint=r"Groups are \1 and \g<name>") from error


def _python(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(CODE, None, f"{_shown(text)} is not a regular expression: {why}") from error
