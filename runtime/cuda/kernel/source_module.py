"""Generated kernel modules: source files named by digest, so that Numba's disk cache finds their machine code."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from ...base.process_cache import process_cache
from ...jit.code_cache import cache, temporary_folder, write_text
from ..element.kernel_text import PACKAGE
from .kernel import DeviceKernel

PREAMBLE = '''"""{title}"""
import numpy as np
from numba import cuda
from {package}.element.bits import from_bf16, half, to_bf16, to_half
from {package}.element.block_quantized import decoder, run_of
from {package}.element.element import CONVERSIONS, scalar
from {package}.element.small_dtypes import few, few_unsigned, field, power, small, to_few, to_power, to_small
globals().update(CONVERSIONS)
'''


@process_cache
def compile_source(title: str, text: str, threads: tuple[int, ...], least: tuple[int, int] = (0, 0)) -> DeviceKernel:
    """The kernel that `text` defines as ``compute``, for compute capability `least` and above."""
    whole = PREAMBLE.format(title=title, package=PACKAGE) + text
    name = f"cuda_{hashlib.sha256(whole.encode()).hexdigest()[:20]}"
    path = _folder() / f"{name}.py"
    try:
        write_text(path, whole)
    except OSError:  # the cache is full, or holds something else by this name
        path = temporary_folder() / f"{name}.py"
        write_text(path, whole)
    return DeviceKernel(_module(name, path).compute, threads, title, path.parent, least)


@process_cache
def _folder() -> Path:
    """The cache folder for the current sources of device functions; a temporary one if the user's cache is not
    writable."""
    device = sorted(Path(sys.modules[PACKAGE].__path__[0]).rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in device))
    folder = cache() / "cuda" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return temporary_folder()
    return folder if os.access(folder, os.W_OK) else temporary_folder()


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
