"""Sandbox for the tokenizers library: a file's normalizer and patterns are first tried in a resource-limited child
process.

The library runs patterns by backtracking, and a pattern, a character map or a chain of replacements may hang it, take
all memory or end the process. A tokenizer of the same parts around an empty vocabulary shows that, where it can be
ended. This module runs in the child.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....runtime.base.errors import FormatError, LimitError
from ....runtime.base.process_cache import process_cache

if TYPE_CHECKING:
    import tokenizers

HINT = "One of its patterns needs too many steps, or its parts contradict each other"


def tried(arguments: Mapping[str, Any]) -> None:
    """Encode and decode as the library would.

    Args:
        arguments: ``tokenizer``, the JSON text of one; ``texts`` to encode; ``tokens`` to decode.

    Raises:
        FormatError: the library reports an error.
        LimitError: the library gives up.
    """
    try:
        engine = _loaded(arguments["tokenizer"])
        for text in arguments["texts"]:
            engine.encode(text, add_special_tokens=False)
        if arguments["tokens"] and engine.decoder is not None:
            engine.decoder.decode(arguments["tokens"])
    except MemoryError:
        raise
    except BaseException as error:  # a panic of the library is no Exception
        if type(error).__name__ == "PanicException":
            raise LimitError(
                "E-TOKENIZER-PANIC",
                None,
                f"the tokenizers library gives up on the tokenizer: {_line(error)}",
                hint=HINT,
            ) from error
        if not isinstance(error, Exception):
            raise
        raise FormatError(
            "E-TOKENIZER-JSON", None, f"the tokenizers library does not take the tokenizer: {_line(error)}"
        ) from error


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


@process_cache(maxsize=1)
def _loaded(text: str) -> tokenizers.Tokenizer:
    import tokenizers

    return tokenizers.Tokenizer.from_str(text)
