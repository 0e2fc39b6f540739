"""Plug-in discovery: finds modules of a package by the constant they declare, without importing them.

For example:

    FORMATS.names()                 # ("darknet", "ggml", "gguf", ...): formats/**/NAME.py with a line ``FORMAT = ...``
    FORMATS.load("gguf")            # that constant
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..base.dataclass import dataclass
from ..base.process_cache import FILES, process_cache

if TYPE_CHECKING:
    from .module_index import Entry

ROOT = __name__.partition(".runtime")[0]
"""Name of the root package."""


@dataclass(frozen=True)
class Plugins:
    """The modules below a package that declare a constant.

    Attributes:
        package: relative to the root package, such as "formats".
        constant: name that each module assigns, or defines as a function, at top level.
        indexed: whether declarations are read from the module index, for large packages.
    """

    package: str
    constant: str
    indexed: bool = False

    def names(self) -> tuple[str, ...]:
        """Names of the modules, without their folders, in alphabetical order."""
        return tuple(sorted(map(_stem, self._modules)))

    def modules(self) -> tuple[str, ...]:
        """Names of the modules, with their folders, such as ``models.language.llama``."""
        return self._modules

    def __contains__(self, name: str) -> bool:
        return self._named(name) is not None

    def load(self, name: str) -> Any:
        """The constant of the module of that name; raises KeyError if it does not exist."""
        module = self._named(name)
        if module is None:
            raise KeyError(name)
        return self._constant(module)

    def all(self) -> tuple[Any, ...]:
        """The constant of every module."""
        return tuple(map(self._constant, self._modules))

    def only(self) -> Any:
        """The constant that a single module declares."""
        (module,) = self._modules
        return self._constant(module)

    def mentioning(self, text: str) -> tuple[str, ...]:
        """Names of the modules whose source contains a text, such as a quoted word by which a plug-in is looked up, or
        the name of an argument that few plug-ins give."""
        return _mentioning(self, text)

    def contains(self, name: str, texts: Sequence[str]) -> bool:
        """Whether the source of the module `name` contains one of several texts."""
        (path,) = (
            module_files(self.package)[module] for module in _by_stem(self.package)[name] if _declares(self, module)
        )
        source = _text(path)
        return any(text.encode(errors="surrogatepass") in source for text in texts)

    @property
    def _modules(self) -> tuple[str, ...]:
        """The modules in alphabetical order."""
        return _declaring(self)

    def _named(self, name: str) -> str | None:
        return next((module for module in _by_stem(self.package).get(name, ()) if _declares(self, module)), None)

    def _constant(self, module: str) -> Any:
        return getattr(importlib.import_module(f"{ROOT}.{module}"), self.constant)


FORMATS = Plugins("formats", "FORMAT")
ARCHITECTURES = Plugins("models", "ARCHITECTURES")
COMMANDS = Plugins("convert.commands", "COMMAND")
COMMAND_GROUPS = Plugins("convert.commands", "GROUP")
OPERATORS = "ops"
"""The package of operators, and of what is known of them and of block types."""
BLOCK_CODECS = Plugins(OPERATORS, "CODECS", indexed=True)
DEVICE_DECODERS = Plugins(OPERATORS, "DEVICE_DECODERS", indexed=True)
COST_RULES = Plugins(OPERATORS, "COST_RULES", indexed=True)


def below(package: str, constant: str) -> Plugins:
    """The plug-ins of a sub-package with the module name ``__name__``."""
    return Plugins(package.removeprefix(f"{ROOT}."), constant)


@process_cache(kept=FILES)
def index(package: str) -> dict[str, Entry]:
    """Declarations and registrations of every module below a package."""
    from .module_index import entries

    return entries(module_files(package))


@process_cache(kept=FILES)
def module_files(package: str) -> dict[str, str]:
    """The modules below a package without `__init__.py`, with their files, in alphabetical order of their names
    relative to the root package."""
    folder = os.path.join(sys.modules[ROOT].__path__[0], *package.split("."))
    return dict(sorted(_files(package, folder)))


@process_cache(kept=FILES)
def _declaring(plugins: Plugins) -> tuple[str, ...]:
    return tuple(module for module in module_files(plugins.package) if _declares(plugins, module))


@process_cache(kept=FILES)
def _declares(plugins: Plugins, module: str) -> bool:
    if plugins.indexed:
        return plugins.constant in index(plugins.package)[module].constants
    text = _text(module_files(plugins.package)[module])
    return any(
        f"\n{form}".encode() in text
        for form in (f"{plugins.constant} = ", f"{plugins.constant}: ", f"def {plugins.constant}(")
    )


@process_cache(maxsize=64, kept=FILES)
def _mentioning(plugins: Plugins, text: str) -> tuple[str, ...]:
    """Names of the modules whose source contains a text."""
    files, encoded = module_files(plugins.package), text.encode(errors="surrogatepass")
    return tuple(_stem(module) for module in plugins.modules() if encoded in _text(files[module]))


@process_cache(kept=FILES)
def _by_stem(package: str) -> dict[str, list[str]]:
    """The modules below a package, by their names without folders."""
    found: dict[str, list[str]] = {}
    for module in module_files(package):
        found.setdefault(_stem(module), []).append(module)
    return found


def _stem(module: str) -> str:
    return module.rpartition(".")[2]


def _text(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _files(package: str, folder: str) -> Iterator[tuple[str, str]]:
    for entry in os.scandir(folder):
        stem, suffix = os.path.splitext(entry.name)
        if suffix == ".py" and stem != "__init__":
            yield f"{package}.{stem}", entry.path
        elif not suffix and stem != "__pycache__" and entry.is_dir():
            yield from _files(f"{package}.{stem}", entry.path)
