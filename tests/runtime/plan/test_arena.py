"""Where allocations lie in the arena: apart while they live at once, and in little more than what lives at once."""

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.plan.arena import aligned, live_bytes, place
from candle_convert.runtime.plan.kernel_api import Allocation
from candle_convert.runtime.session import Session


@pytest.mark.parametrize("seed", range(20))
def test_rooms_that_live_at_once_lie_apart(seed):
    draw = random.Random(seed)
    allocations = []
    for _ in range(draw.randint(1, 120)):
        first = draw.randint(0, 100)
        allocations.append(
            Allocation(
                draw.choice([8, 100, 1000, draw.randint(1, 5000)]),
                first=first,
                last=first + draw.choice([0, 1, 2, 5, 50]),
            )
        )
    total = place(allocations)
    for index, one in enumerate(allocations):
        assert one.at >= 0
        assert one.at + aligned(one.nbytes) <= total
        for other in allocations[:index]:
            if one.first <= other.last and other.first <= one.last:
                assert one.at + aligned(one.nbytes) <= other.at or other.at + aligned(other.nbytes) <= one.at
    assert live_bytes(allocations, 200) <= total <= 1.2 * live_bytes(allocations, 200)


@pytest.mark.parametrize("name", ["squeezenet", "densenet121", "inception_v2", "shufflenet"])
def test_the_arena_of_a_model_is_what_lives_at_once(name):
    path = Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    session = Session(graph_of(onnx.load(path)), native=True, threads=2)
    session.run(None, {value.name: np.zeros(value.shape, "f4") for value in session.get_inputs()})
    (plan,) = session.program.plans
    assert plan.min_arena <= plan.arena <= 1.1 * plan.min_arena


def test_nothing_needs_no_memory():
    assert place([]) == 0
