"""Source lines: where the user's program built an expression, for errors that are found later."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from ...runtime.plugin.discovery import ROOT

SourceLine = tuple[CodeType, int]
"""Code, and the offset of its last instruction; the number of the line is computed when it is asked for."""
_own: dict[CodeType, bool] = {}
"""Whether code belongs to this package."""
_PACKAGE = os.path.dirname(os.path.abspath(sys.modules[ROOT].__file__ or "")) + os.sep
_TESTS = os.path.join(_PACKAGE, "tests") + os.sep


def source_line() -> SourceLine | None:
    """The innermost frame outside of this package."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        own = _own.get(code)
        if own is None:
            name = code.co_filename
            own = _own[code] = name.startswith(_PACKAGE) and not name.startswith(_TESTS)
        if not own:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def described(line: SourceLine | None) -> str:
    """File and number of a line; empty if it is not known."""
    if line is None:
        return ""
    code, instruction = line
    number = code.co_firstlineno
    for start, stop, row in code.co_lines():
        if start <= instruction < stop and row is not None:
            number = row
    return f"{code.co_filename}:{number}"
