"""Colors of lines on a terminal: warnings yellow, failures red, events dim; none in pipes or with NO_COLOR."""

from __future__ import annotations

import os
from typing import IO

WARNING, FAILURE, EVENT = "33", "31", "2"
"""Parameters of the terminal's SGR sequence."""


def colored(text: str, style: str, stream: IO[str]) -> str:
    """A line in a color, where `stream` is a terminal that shows colors."""
    if not style or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{style}m{text}\x1b[0m"
