"""A copy of the package with one module more, and Python that imports it."""

import os
import subprocess
import sys
from pathlib import Path

import candle_convert

PACKAGE = Path(candle_convert.__file__).parent


def package_with(folder, path, text):
    """A copy of the package, made of links, with one file more or another one; again for further files."""
    copy = folder / "candle_convert"
    for place in reversed((copy / path).parents[: len(Path(path).parents)]):
        if place.is_dir() and not place.is_symlink():
            continue
        place.unlink(missing_ok=True)
        place.mkdir()
        existing = PACKAGE / place.relative_to(copy)
        for entry in os.scandir(existing) if existing.is_dir() else ():
            if entry.name != "__pycache__":
                (place / entry.name).symlink_to(entry.path)
    (copy / path).unlink(missing_ok=True)
    (copy / path).write_text(text)


def python(folder, *words):
    """What Python prints when it imports the package of `folder`."""
    command = [sys.executable, *words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
