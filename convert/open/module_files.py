"""Files of the modules of sentence-transformers: each has a folder of its own next to the model.

They are attachments, not parts of a model: modules.json lists them in the order in which they are applied to hidden
states, and they are read where embeddings are computed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...runtime.base.errors import Error
from ...runtime.base.untrusted.json import parse
from ...runtime.tensor.file import Source, contained

MODULES = "modules.json"
FILES = ("config.json", "model.safetensors", "pytorch_model.bin")
DENSE = re.compile(r"\d+_Dense\w*")
"""Folders of Dense modules, whose names say what they are without modules.json."""
MOST = 64
MODULE_FILE = re.compile(r"(?![.])[\w.-]+/(config\.json|model\.safetensors)")
"""Names of files of modules that are written."""


def is_module_file(name: str) -> bool:
    """Whether an attached file is one of a module, and may be written into a folder of its own."""
    return MODULE_FILE.fullmatch(name) is not None


def module_files(folder: Path, names: Sequence[str]) -> list[str]:
    """The files of modules, by their names relative to a model's directory.

    Args:
        names: of the files in the directory itself.
    """
    if MODULES in names:
        folders = _listed(Source(contained(folder, MODULES, str(folder))))
    else:
        folders = [entry.name for entry in sorted(folder.iterdir()) if DENSE.fullmatch(entry.name)]
    found = []
    for inner in folders[:MOST]:
        for name in FILES:
            relative = f"{inner}/{name}"
            if contained(folder, relative, str(folder)).is_file():
                found.append(relative)
                if name != FILES[0]:
                    break
    return found


def _listed(source: Source) -> list[str]:
    """The folders that modules.json names; what it has besides is checked where the modules are used."""
    try:
        said = parse(source.read(0, source.size), source, 0, "E-SENTENCE-MODULE")
    except Error:
        return []
    paths = [each.get("path") for each in said if isinstance(each, dict)] if isinstance(said, list) else []
    return [path for path in paths if isinstance(path, str) and path]
