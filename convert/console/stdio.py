"""Standard input and output as files: where ``-`` is allowed, and the errors where it is not."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import IO

from ...runtime.base.errors import UsageError
from .output import current

STREAM = "-"


def refuse_stream(path: str, what: str) -> None:
    """UsageError for ``-`` where bytes are written by position and read back: they need a file."""
    if path == STREAM:
        why = f"{what} cannot be written to standard output: tensors are written at offsets and read back"
        hint = "Use a file; only text (JSON, tokenizers, templates, reports) can be piped"
        raise UsageError("E-OUT-STREAM", None, why, hint=hint)


def standard_output() -> Iterator[IO[bytes]]:
    """Standard output as a file; its option has the type `TextPath`, which silences what the command would say
    there."""
    if current().json:
        raise UsageError(
            "E-OUT-STREAM", None, "--json and an output to - both need standard output", hint="Use a file instead of -"
        )
    held = io.BytesIO()
    yield held
    sys.stdout.flush()
    sys.stdout.buffer.write(held.getvalue())
    sys.stdout.flush()
