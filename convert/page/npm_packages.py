"""npm packages that a page has copies of: where they are installed, and which of their files a browser loads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsupportedError

TRANSFORMERS, ONNXRUNTIME = "@huggingface/transformers", "onnxruntime-web"
MODULES, DESCRIPTION, LICENSE = "node_modules", "package.json", "LICENSE"
BINARY = re.compile(rb"ort-wasm-simd-threaded[.a-z]*\.wasm")
"""Names of WebAssembly files in a script that loads them."""


@dataclass(frozen=True)
class Runtime:
    """The npm packages that run models in the browser.

    Attributes:
        package: the npm package.
        script: the file of it that pages import; the WebAssembly files that it names are those of onnxruntime-web.
    """

    package: str
    script: str


TRANSFORMERS_JS = Runtime(TRANSFORMERS, "dist/transformers.min.js")
TEXT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
"""Files that Transformers.js reads of every model of texts."""
ONNXRUNTIME_WEB = Runtime(ONNXRUNTIME, "dist/ort.webgpu.bundle.min.mjs")


@dataclass(frozen=True)
class Installed:
    """A runtime as it is installed.

    Attributes:
        files: what a page has copies of, by the name of the copy; the first is the script.
        packages: name and version of the packages that they are from.
    """

    files: Mapping[str, Path]
    packages: tuple[str, ...]

    def copy(self, folder: Path) -> None:
        """Copy the files into a new folder."""
        folder.mkdir()
        for name, path in self.files.items():
            shutil.copyfile(path, folder / name)

    def names(self, model_type: str) -> bool:
        """Whether the script has a ``model_type`` of config.json as a string."""
        script = next(iter(self.files.values())).read_text("utf-8")
        return any(f"{quote}{model_type}{quote}" in script for quote in "\"'`")


def install(folder: Path) -> None:
    """Let npm install the packages into the ``node_modules`` of a folder; their scripts are not run, and a
    ``package.json`` there stays as it is.

    Raises UnsupportedError where npm is missing or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
    words = ["npm", "install", *options, TRANSFORMERS]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        why = "--install needs npm, which is not installed"
        raise UnsupportedError("E-PAGE-NPM", None, why, hint="Install Node.js, which has npm") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise UnsupportedError("E-PAGE-NPM", str(folder), f"npm install failed: {said[0] if said else done.returncode}")


def installed(runtime: Runtime, folder: Path | None) -> Installed:
    """The files of a runtime.

    Args:
        folder: where its packages are installed, with or without a ``node_modules`` in it; None for the
            ``node_modules`` of the current folder and of those above it, as Node searches.

    Raises:
        UnsupportedError: a package is not installed, or has other files than pages need.
        FormatError: a ``package.json`` is damaged.
    """
    package = _package(runtime.package, _folders(folder))
    if package is None:
        where = "the folders node_modules here and above" if folder is None else str(folder)
        hint = f"Run npm install {ONNXRUNTIME} {TRANSFORMERS} and pass its folder with --runtime, or pass --install"
        raise UnsupportedError("E-PAGE-RUNTIME", None, f"no npm package {runtime.package} in {where}", hint=hint)
    script = package / runtime.script
    packages = [package]
    files = [script]
    if not script.is_file():
        raise _incomplete(package, runtime.script)
    engine = package if runtime.package == ONNXRUNTIME else _engine(package)
    if engine != package:
        packages.append(engine)
    for name in sorted({found.decode() for found in BINARY.findall(script.read_bytes())}):
        files.append(engine / "dist" / name)
        if not files[-1].is_file():
            raise _incomplete(engine, f"dist/{name}")
    facts = [_description(each) for each in packages]
    licenses = {f"{LICENSE}.{each.name}": each / LICENSE for each in packages if (each / LICENSE).is_file()}
    copies = {**{path.name: path for path in files}, **licenses}
    return Installed(copies, tuple(f"{each['name']} {each['version']}" for each in facts))


def _folders(folder: Path | None) -> Iterator[Path]:
    """Folders that are searched for packages."""
    if folder is not None:
        yield folder / MODULES
        yield folder
    else:
        here = Path.cwd()
        yield from (each / MODULES for each in (here, *here.parents))


def _package(name: str, folders: Iterator[Path]) -> Path | None:
    return next((folder / name for folder in folders if (folder / name / DESCRIPTION).is_file()), None)


def _engine(package: Path) -> Path:
    """The onnxruntime-web that a package was built with: its own, or the one next to it.

    Raises UnsupportedError for another version than it asks for, whose WebAssembly does not fit.
    """
    modules = package.parents[1]
    engine = _package(ONNXRUNTIME, iter((package / MODULES, modules)))
    wanted = _description(package).get("dependencies", {}).get(ONNXRUNTIME)
    version = None if engine is None else _description(engine).get("version")
    if engine is None or version != wanted:
        why = f"{package.name} needs {ONNXRUNTIME} {wanted}"
        found = "none" if version is None else version
        hint = f"npm install {TRANSFORMERS} in a folder of its own, and pass it with --runtime"
        raise UnsupportedError("E-PAGE-RUNTIME", str(modules), why, found=found, hint=hint)
    return engine


def _description(package: Path) -> dict[str, Any]:
    path = package / DESCRIPTION
    try:
        said = json.loads(path.read_bytes())
    except ValueError as error:
        raise FormatError("E-PAGE-PACKAGE", str(path), f"not a package.json: {error}") from None
    if not isinstance(said, dict):
        raise FormatError("E-PAGE-PACKAGE", str(path), "not a package.json: no object")
    return said


def _incomplete(package: Path, name: str) -> UnsupportedError:
    hint = f"Install {TRANSFORMERS} 4.3 and {ONNXRUNTIME} 1.30 or newer"
    return UnsupportedError("E-PAGE-PACKAGE", str(package), f"the package has no file {name}", hint=hint)
