"""A few small valid files of every format, made by the library that the format comes from; else by hand.

`SAMPLES[format name]` maps a sample's id to a function that gets an empty folder and returns the file in it to open.
A module ``samples/NAME.py`` declares those of the format NAME.
"""

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

from candle_convert.tests.builders import samples

Builder = Callable[[Path], Path]
SAMPLES: dict[str, dict[str, Builder]] = {
    module.name: importlib.import_module(f"{samples.__name__}.{module.name}").SAMPLES
    for module in pkgutil.iter_modules(samples.__path__)
}


def rows() -> list[tuple[str, str]]:
    """Every pair of format and sample id."""
    return [(format, name) for format, named in SAMPLES.items() for name in named]
