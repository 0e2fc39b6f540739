"""The gate's caches: what was kept is found whole or not at all."""

import os
import runpy
import subprocess
import sys

import pytest
from candle_convert.tests.builders.paths import REPOSITORY

SCRIPT = REPOSITORY / ".ci" / "kept_cache.py"


@pytest.fixture
def kept(tmp_path):
    """Calls the script with the environment that names the folder of archives."""

    def call(action, folder, **environment):
        outer = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
        words = [sys.executable, str(SCRIPT), action, "types", str(tmp_path / folder)]
        done = subprocess.run(words, env=outer | environment, capture_output=True, text=True, check=True)
        return done.stderr

    return call


def written(folder, text):
    (folder / "3.11").mkdir(parents=True, exist_ok=True)
    (folder / "3.11" / "cache.db").write_text(text)


def test_what_is_kept_comes_back(kept, tmp_path):
    store = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
    for text in ("first", "second"):
        written(tmp_path / "made", text)
        assert kept("keep", "made", **store) == ""
    assert len(list((tmp_path / "caches" / "candle-convert-gate").iterdir())) == 1
    assert kept("restore", "found", **store) == ""
    assert (tmp_path / "found" / "3.11" / "cache.db").read_text() == "second"


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"x" + data[1:], lambda data: b""])
def test_a_damaged_archive_is_deleted(kept, tmp_path, damage):
    store = {"HOME": str(tmp_path)}
    written(tmp_path / "made", "text")
    kept("keep", "made", **store)
    (archive,) = (tmp_path / ".cache" / "candle-convert-gate").iterdir()
    archive.write_bytes(damage(archive.read_bytes()))
    assert kept("restore", "found", **store) == ""
    assert not archive.exists()
    assert not (tmp_path / "found").exists()


def test_without_a_folder_or_room_nothing_is_kept(kept, tmp_path):
    written(tmp_path / "made", "text")
    assert kept("keep", "made") == kept("restore", "found") == ""
    (tmp_path / "file").write_text("")
    assert kept("keep", "made", HOME=str(tmp_path / "file")).startswith("types: ")
    assert kept("restore", "found", HOME=str(tmp_path / "file")) == ""
    assert kept("keep", "missing", HOME=str(tmp_path)).startswith("types: ")
    assert not [path for path in (tmp_path / ".cache" / "candle-convert-gate").iterdir() if path.suffix == ".tar"]
    assert not (tmp_path / "found").exists()


def test_an_archive_that_cannot_be_unpacked_leaves_nothing(tmp_path):
    script = runpy.run_path(str(SCRIPT))
    archive = tmp_path / "types.tar"
    archive.write_bytes(b"no archive")
    archive.rename(tmp_path / script["_named"](archive, "types"))
    script["restore"](tmp_path, "types", tmp_path / "found")
    assert not (tmp_path / "found").exists()
