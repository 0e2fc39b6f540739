"""Sampling: over the turns of consecutive commits all cases run, each in one of them."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from candle_convert.tests.builders import sampling
from candle_convert.tests.builders.paths import TESTS


@dataclass(frozen=True)
class Item:
    """A parameter of a test; those of c are not sampled."""

    nodeid: str

    def get_closest_marker(self, kind):
        return None if self.nodeid[0] == "c" else pytest.mark.sampled(3).mark


@pytest.fixture
def at(monkeypatch):
    """Sets the turn of a run that is not full."""
    monkeypatch.delenv("CANDLE_FULL", raising=False)
    return lambda turn: monkeypatch.setattr(sampling, "turn", lambda: turn)


def test_cases_of_all_turns(at):
    chosen = []
    for turn in range(100, 103):
        at(turn)
        chosen.append(sampling.every(3, range(10)))
    assert chosen == [[1, 4, 7], [2, 5, 8], [0, 3, 6, 9]]


@pytest.mark.parametrize(("turn", "chosen"), [(7, "a1 a4 b1"), (8, "a2 b2"), (9, "a0 a3 b0")])
def test_parameters_of_marked_tests(at, request, turn, chosen):
    """Those of each test are counted by themselves, and those that the command line names run."""
    at(turn)
    items = [Item(f"{test}[{number}]") for test, count in (("a", 5), ("b", 3), ("c", 2)) for number in range(count)]
    choose = request.config.pluginmanager.get_plugin(str(TESTS / "conftest.py")).pytest_collection_modifyitems
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    options = {"args": ["tests"], "getoption": lambda name: "", "hook": hook}
    left = [*items]
    choose(SimpleNamespace(**options), left)
    assert left == [item for item in items if item.nodeid[0] + item.nodeid[2] in [*chosen.split(), "c0", "c1"]]
    left = [*items]
    choose(SimpleNamespace(**options | {"args": ["tests/test_x.py::a[0]"]}), left)
    assert left == items


def test_turns_count_commits(tmp_path, monkeypatch):
    monkeypatch.setenv(sampling.VARIABLE, "12")
    assert sampling.turn.__wrapped__() == 12
    monkeypatch.delenv(sampling.VARIABLE)
    monkeypatch.setattr(sampling, "REPOSITORY", tmp_path)
    assert sampling.turn.__wrapped__() == 0  # git knows no commits
