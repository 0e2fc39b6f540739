"""Recognising architectures: a family is found by the word for it in its text, as it is by looking at all."""

import subprocess
import sys

from candle_convert.runtime import registry

PROGRAM = """
import sys
from candle_convert.runtime.arch import GGUF
from candle_convert.runtime.binding import recognise

print(recognise(GGUF, {"general.architecture": "gemma3"}).name, *sorted(name for name in sys.modules if name.startswith("candle_convert.models.")))
"""


def test_every_family_mentions_its_kinds():
    for module in registry.names("models"):
        for architecture in registry.load("models", module, "ARCHITECTURES"):
            for kind in (*architecture.model_types, *architecture.gguf):
                assert module in registry.mentioning("models", kind), f"{module}.py has no {kind!r}, by which `recognise` finds it"


def test_other_families_are_not_loaded():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    name, *modules = done.stdout.split()
    assert name.startswith("gemma3")
    assert "candle_convert.models.gemma" in modules
    assert "candle_convert.models.mamba" not in modules
