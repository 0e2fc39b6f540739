"""Warnings, events and failures: marks and colors on a terminal, marks alone in pipes, neither in JSON."""

import io

import pytest
from candle_convert.convert.console.output import EVENT, FAILURE, WARNING, Output, colored, notes_json
from candle_convert.runtime.ir.graph import Graph


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def notes():
    graph = Graph()
    graph.note("W-NAN", "2 NaN values were kept", "w")
    graph.event("W-KEY", "weights found under 'state_dict'")
    return graph.notes


def shown(notes, stream, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream)
    Output().warn(notes)
    return stream.getvalue()


def test_a_pipe_has_marks_only(notes, monkeypatch):
    assert shown(notes, io.StringIO(), monkeypatch) == (
        "! W-NAN  w: 2 NaN values were kept\n note     weights found under 'state_dict'\n"
    )


def test_a_terminal_has_colors(notes, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert shown(notes, Terminal(), monkeypatch) == (
        "\x1b[33m! W-NAN  w: 2 NaN values were kept\x1b[0m\n\x1b[2m note     weights found under 'state_dict'\x1b[0m\n"
    )


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colors_can_be_switched_off(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    for style in (EVENT, FAILURE, WARNING):
        assert colored("x", style, Terminal()) == "x"


def test_json_says_which_notes_are_events(notes):
    assert [(each["code"], each["event"]) for each in notes_json(notes)] == [("W-NAN", False), ("W-KEY", True)]
