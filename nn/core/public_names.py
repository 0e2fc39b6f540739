"""The public names of a folder: what the modules in it list in `__all__`."""

from __future__ import annotations

import importlib
from typing import Any

from ...runtime.plugin.discovery import ROOT, module_files


def public_names(package: str) -> dict[str, Any]:
    """Name -> object, of the modules of a package such as ``nn.layers``."""
    found = {}
    for name in module_files(package):
        module = importlib.import_module(f"{ROOT}.{name}")
        found.update({each: getattr(module, each) for each in getattr(module, "__all__", ())})
    return found
