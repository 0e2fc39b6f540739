"""Where rooms lie in the arena: apart while they live at once, and in little more than what lives at once."""

import random

import pytest
from candle_convert.runtime.launch import Room
from candle_convert.runtime.memory import aligned, live_bytes, place


@pytest.mark.parametrize("seed", range(20))
def test_rooms_that_live_at_once_lie_apart(seed):
    draw = random.Random(seed)
    rooms = []
    for _ in range(draw.randint(1, 120)):
        first = draw.randint(0, 100)
        rooms.append(Room(draw.choice([8, 100, 1000, draw.randint(1, 5000)]), first=first, last=first + draw.choice([0, 1, 2, 5, 50])))
    total = place(rooms)
    for index, one in enumerate(rooms):
        assert one.at >= 0
        assert one.at + aligned(one.nbytes) <= total
        for other in rooms[:index]:
            if one.first <= other.last and other.first <= one.last:
                assert one.at + aligned(one.nbytes) <= other.at or other.at + aligned(other.nbytes) <= one.at
    assert live_bytes(rooms, 200) <= total <= 1.25 * live_bytes(rooms, 200)


def test_nothing_needs_no_memory():
    assert place([]) == 0
