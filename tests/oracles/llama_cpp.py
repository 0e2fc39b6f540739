"""Where llama.cpp's libraries lie: an environment variable names one; the wheel xllamacpp holds both.

Its extension module exports the C symbols of libllama and libggml. Structures are declared in `libggml` and `libllama` as the pinned release
has them; `fits` ends a run at once where a library has other ones.
"""

import importlib.util
import os
from pathlib import Path


class LayoutError(Exception):
    """A structure of the library differs from its declaration in the tests."""


def located(variable):
    """The path that the environment variable holds, or else of the wheel's library; None if neither exists."""
    if os.environ.get(variable):
        return Path(os.environ[variable])
    spec = importlib.util.find_spec("xllamacpp")
    found = sorted(Path(spec.origin).parent.glob("xllamacpp.*.so")) if spec and spec.origin else []
    return found[0] if found else None


def fits(library, structure, found, expected):
    """Raise LayoutError unless what a structure holds is what functions of the library say."""
    if found != expected:
        advice = "Use the release of xllamacpp that pyproject.toml pins, or declare the structure as this library has it"
        raise LayoutError(f"{library}: {structure} reads as {found}, not {expected}. {advice}")


__all__ = ["LayoutError", "fits", "located"]
