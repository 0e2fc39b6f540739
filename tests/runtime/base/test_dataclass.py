"""Records behave as the standard library's dataclasses do."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import candle_convert.runtime.base.dataclass as record
import pytest
from candle_convert.runtime.base.limits import Limits


def _classes(decorator: Any, frozen: bool, eq: bool) -> tuple[Any, Any]:
    @decorator(frozen=frozen, eq=eq)
    class Point:
        """A place."""

        x: int
        names: tuple[str, ...] = ()
        weight: int = dataclasses.field(default=0, compare=False, repr=False)

    @decorator(frozen=frozen, eq=eq)
    class Marked(Point):
        """A place with a mark."""

        mark: str = "a"

        def __repr__(self) -> str:
            return "marked"

    return Point, Marked


def _outcome(made: Callable[[], object]) -> object:
    try:
        return made()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("eq", [False, True])
def test_as_the_standard_library(frozen: bool, eq: bool) -> None:
    found = []
    for decorator in (dataclasses.dataclass, record.dataclass):
        point, marked = _classes(decorator, frozen, eq)
        one, same, other = point(1, ("b",)), point(1, ("b",), 9), point(2)
        found.append(
            [
                repr(one),
                repr(marked(1)),
                one == same,
                one != other,
                one == other,
                marked(1) == marked(1),
                point(1) == marked(1),
                one == 1,
                _outcome(lambda one=one, same=same: hash(one) == hash(same)),
                _outcome(lambda one=one: setattr(one, "x", 3)),
                _outcome(lambda one=one: delattr(one, "weight")),
                dataclasses.asdict(same),
                dataclasses.replace(same, x=4).names,
                copy.copy(same).weight,
                copy.deepcopy(same).names,
                point.__match_args__,
            ]
        )
    assert found[0] == found[1]


def test_records_hold_themselves_and_travel() -> None:
    @record.dataclass
    class Ring:
        inner: list[Any]

    ring = Ring([])
    ring.inner.append(ring)
    assert repr(ring).endswith("Ring(inner=[...])")
    assert pickle.loads(pickle.dumps(Limits())) == Limits()
