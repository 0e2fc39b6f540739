"""``pytest --changed``: only modules of tests that a change against a commit reaches.

A change reaches a module of tests that imports the changed file, directly or through others; one that stands where the
tests of its folder stand, or of the folders around it, whose suites go over registries; and one that names it, if it is
data. What the tests at the top of the tree say of all files is left to the whole suite.
"""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path
from types import ModuleType

import candle_convert
import pytest
from candle_convert.runtime.jit.source_digest import imported
from candle_convert.tests.builders.paths import REPOSITORY, TESTS

OF_ALL = {REPOSITORY / "pyproject.toml", TESTS / "conftest.py", *Path(__file__).parent.glob("*.py")}
"""Files that every test depends on."""
_NAMES = re.compile(r"\b(?:cc|candle_convert)\.([a-zA-Z]\w*)")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("general").addoption(
        "--changed",
        nargs="?",
        const="HEAD",
        metavar="REV",
        help="run only tests that changes since a commit (HEAD by default) reach by imports, place or name",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("changed") is not None:
        changed_since(config.getoption("changed"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    revision = config.getoption("changed")
    if revision is None or not collection_path.match("test_*.py") or TESTS not in collection_path.parents:
        return None
    return not _reaches(changed_since(revision), collection_path) or None


@functools.cache
def changed_since(revision: str) -> frozenset[Path]:
    """Files that differ from a commit, and new ones that git does not ignore."""
    return frozenset(
        REPOSITORY / name
        for words in (("diff", "--name-only", "-z", revision), ("ls-files", "--others", "--exclude-standard", "-z"))
        for name in _git(*words).split("\0")
        if name
    )


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(REPOSITORY), *words, "--"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise pytest.UsageError(f"--changed: {done.stderr.strip()}")
    return done.stdout


def _reaches(changed: frozenset[Path], test: Path) -> bool:
    if changed & OF_ALL or changed & closure(test):
        return True
    return any(_stands_by(path, test) or (path.suffix != ".py" and _names(path, test)) for path in changed)


@functools.cache
def closure(path: Path) -> frozenset[Path]:
    """A file and all that it imports, directly or indirectly. Of the package itself, which imports on demand, the
    modules count whose names are used."""
    found, pending = {path}, [path]
    while pending:
        new = _imports(pending.pop()) - found
        found |= new
        pending += new
    return frozenset(found)


@functools.cache
def _imports(path: Path) -> frozenset[Path]:
    if path == REPOSITORY / "__init__.py":
        return frozenset()
    files = {Path(name) for name in imported(str(path))}
    if TESTS in path.parents:
        files |= {file for name in set(_NAMES.findall(_text(path))) if (file := _defining_file(name)) is not None}
    return frozenset(files)


@functools.cache
def _defining_file(name: str) -> Path | None:
    """The file of a public name of the package."""
    value = getattr(candle_convert, name, None)
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    place = REPOSITORY.joinpath(*str(module).split(".")[1:])
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _stands_by(path: Path, test: Path) -> bool:
    """Whether the tests of a file's folder, or of one around it, are this module's."""
    if TESTS in path.parents or test.parent == TESTS:
        return False
    folder = TESTS / path.parent.relative_to(REPOSITORY)
    return folder == test.parent or test.parent in folder.parents


def _names(path: Path, test: Path) -> bool:
    """Whether a module of tests, or a helper of it, names a file, or its folder."""
    words = (path.name, path.parent.name) if path.parent != REPOSITORY else (path.name,)
    return any(word in _text(file) for file in closure(test) if TESTS in file.parents for word in words)
