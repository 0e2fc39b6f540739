"""Source lines: where the user's program built an expression, for errors that are found later."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from ...runtime.base.process_cache import owned
from ...runtime.plugin.discovery import ROOT

SourceLine = tuple[CodeType, int]
"""Code, and the offset of its last instruction; the number of the line is computed when it is asked for."""
_own: dict[str, bool] = owned({})
"""Whether a file of code belongs to what users import."""
_PACKAGE = os.path.dirname(os.path.abspath(sys.modules[ROOT].__file__ or "")) + os.sep
_USERS = tuple(os.path.join(_PACKAGE, folder) + os.sep for folder in ("benchmarks", "tests"))


def source_line() -> SourceLine | None:
    """The innermost frame of the user's program."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        own = _own.get(file)
        if own is None:
            own = _own[file] = file.startswith(_PACKAGE) and not file.startswith(_USERS)
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
