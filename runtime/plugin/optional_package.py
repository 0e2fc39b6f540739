"""Optional packages, imported when they are needed: a missing one is an error that names its install command."""

from __future__ import annotations

import importlib
from typing import Any

from ..base.dataclass import dataclass
from ..base.errors import UnsupportedError


@dataclass(frozen=True)
class Extra:
    """A package of an extra of this one.

    Attributes:
        title: its name for people.
        extra: as pyproject.toml has it.
        code: of the error without it.
    """

    title: str
    extra: str
    code: str


PACKAGES = {
    "PIL": Extra("Pillow", "image", "E-OP-PILLOW"),
    "soundfile": Extra("soundfile", "audio", "E-SOUND-LIBRARY"),
    "soxr": Extra("soxr", "audio", "E-SOUND-LIBRARY"),
    "llguidance": Extra("llguidance", "grammar", "E-GRAMMAR-PACKAGE"),
    "huggingface_hub": Extra("huggingface_hub", "hub", "E-HUB-EXTRA"),
    "starlette": Extra("Starlette", "serve", "E-SERVE-EXTRA"),
    "uvicorn": Extra("Uvicorn", "serve", "E-SERVE-EXTRA"),
    "prometheus_client": Extra("prometheus-client", "serve", "E-SERVE-EXTRA"),
    "distributed": Extra("Dask", "cluster", "E-CLUSTER-EXTRA"),
    "h5py": Extra("h5py", "keras", "E-KERAS-H5PY"),
    "torch": Extra("PyTorch", "torch", "E-TORCH-PACKAGE"),
}
"""Optional packages by the name that is imported."""


def optional_package(name: str, use: str) -> Any:
    """The module `name`, of a package in `PACKAGES`; UnsupportedError without it.

    Args:
        use: what needs it, such as "reading images".
    """
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, OSError) as cause:  # soundfile raises OSError without its shared library
        raise _error(name.partition(".")[0], use) from cause


def missing_package(error: ModuleNotFoundError) -> UnsupportedError | None:
    """The error of an import that failed for want of an optional package; None for other modules."""
    name = (error.name or "").partition(".")[0]
    return _error(name, "this command") if name in PACKAGES else None


def _error(name: str, use: str) -> UnsupportedError:
    package = PACKAGES[name]
    hint = f"pip install 'candle-convert[{package.extra}]'"
    return UnsupportedError(package.code, None, f"{use} needs {package.title}, which is not installed", hint=hint)
