"""Recognising architectures: a family is found by the word for it in its text, as it is by looking at all."""

import subprocess
import sys

import pytest
from candle_convert.runtime.contract import weight_binding
from candle_convert.runtime.contract.architecture import HF
from candle_convert.runtime.plugin import discovery

PROGRAM = """
import sys
from candle_convert.runtime.contract.architecture import GGUF
from candle_convert.runtime.contract.weight_binding import find_architecture

loaded = find_architecture(GGUF, {"general.architecture": "gemma3"}).name
print(loaded, *sorted(name for name in sys.modules if name.startswith("candle_convert.models.")))
"""


def test_every_family_mentions_its_kinds():
    for module in discovery.ARCHITECTURES.names():
        for architecture in discovery.ARCHITECTURES.load(module):
            for kind in (*architecture.model_types, *architecture.gguf):
                assert module in discovery.ARCHITECTURES.mentioning(f'"{kind}"'), (
                    f"{module}.py has no {kind!r}, by which `find_architecture` finds it"
                )


def test_every_family_that_is_implied_mentions_it():
    for module in discovery.ARCHITECTURES.names():
        if any(architecture.implied for architecture in discovery.ARCHITECTURES.load(module)):
            assert module in discovery.ARCHITECTURES.mentioning("implied=")


def test_other_families_are_not_loaded():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    name, *modules = done.stdout.split()
    assert name.startswith("gemma3")
    assert "candle_convert.models.language.gemma" in modules
    assert "candle_convert.models.language.mamba" not in modules


@pytest.mark.parametrize("kind", ["yolov8", "fastvit", "resnet"])
def test_our_own_names_load_no_other_family(monkeypatch, kind):
    monkeypatch.setattr(weight_binding, "architectures", lambda: pytest.fail("every family is loaded"))
    assert kind in weight_binding.find_architecture(HF, {"model_type": kind}).name
