"""GGUF files whose keys and tensors are changed: every command ends as bad input may."""

import random

from candle_convert.runtime.contract.architecture import GGUF
from candle_convert.tests.fuzz.actions import chosen
from candle_convert.tests.fuzz.gguf_fields import changed_field, changed_tensor, encoded, fields, infos
from candle_convert.tests.fuzz.harness import Case, sweep
from candle_convert.tests.fuzz.synthetic import NAMES, synthetic

PRESENT = [name for name in NAMES if synthetic(name, GGUF) is not None]


def mutant(draw: random.Random) -> Case:
    """A file with one to three changes, three times out of four to its keys."""
    model = synthetic(draw.choice(PRESENT), GGUF)
    assert model is not None
    pairs, (tensors, data) = fields(model.said), infos(model.weights)
    for _ in range(draw.choice((1, 1, 2, 3))):
        if draw.random() < 0.75:
            changed_field(pairs, draw)
        elif tensors:
            changed_tensor(tensors, draw)
    return Case({"m.gguf": encoded(pairs, tensors, data)}, chosen("{dir}/m.gguf", draw))


def test_changed_files(full):
    sweep(mutant, full, count=15)
