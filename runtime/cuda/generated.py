"""Generated modules: kernels as text, in files whose names are digests, so that Numba's disk cache finds their machine code again."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..machine import write_text
from .kernel import DeviceKernel

PREAMBLE = '''"""{title}"""
import numpy as np
from numba import cuda
from {package}.bits import brain, half, to_brain, to_half
from {package}.coded import decoder, run_of
from {package}.element import CONVERSIONS, scalar
from {package}.narrow import few, few_unsigned, field, power, small, to_few, to_power, to_small
globals().update(CONVERSIONS)
'''


@functools.cache
def made(title: str, text: str, threads: tuple[int, ...], least: tuple[int, int] = (0, 0)) -> DeviceKernel:
    """The kernel that `text` defines as ``compute``, for compute capabilities from `least` on."""
    whole = PREAMBLE.format(title=title, package=__package__) + text
    name = f"cuda_{hashlib.sha256(whole.encode()).hexdigest()[:20]}"
    path = _folder() / f"{name}.py"
    write_text(path, whole)
    return DeviceKernel(_module(name, path).compute, threads, title, path.parent, least)


@functools.cache
def _folder() -> Path:
    """A folder for the very sources that generated kernels call; a temporary one where the user's cache cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
    folder = Path(base) / "candle-convert" / "cuda" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="candle-convert-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="candle-convert-"))


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
