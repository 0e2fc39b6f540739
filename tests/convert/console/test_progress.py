"""Progress never exceeds its total, speaks of sizes as people do, and a terminal is never silent for long."""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest
from candle_convert.convert.console import progress, status_line

PATIENCE = 120


@pytest.mark.parametrize("style", ["bar", "plain", "json"])
@pytest.mark.parametrize(
    ("total", "skipped", "steps"), [(100, 0, [430]), (100, 150, [10]), (100, 90, [5, -50, 40]), (0, 0, [7])]
)
def test_more_than_the_total_is_the_total(style, total, skipped, steps, capsys, monkeypatch):
    ticks = iter(range(0, 10_000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    shown = progress.STYLES[style]()
    shown.phase("reading")
    shown.start(total, skipped)
    for step in steps:
        shown.advance(step)
    if style == "bar":
        (task,) = shown._bar.tasks
        assert 0 <= task.completed <= task.total
    shown.finish()
    said = capsys.readouterr().err
    assert all(int(share) <= 100 for share in re.findall(r"(\d+)%", said))
    assert "-" not in said.replace("->", "")


def test_plain_lines_have_units(capsys, monkeypatch):
    ticks = iter(range(0, 100, 2))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    shown = progress.PlainProgress()
    shown.phase("writing")
    shown.start(4 * 2**30)
    shown.advance(2**30)
    shown.start(2000, unit="tokens")
    shown.advance(1000)
    assert capsys.readouterr().err == (
        "writing 25%  1.00 GiB of 4.00 GiB  512.00 MiB/s  6 s left\nwriting 50%  1,000 of 2,000 tokens  500 tokens/s  "
        "2 s left\n"
    )


@pytest.fixture
def line(monkeypatch):
    """A line with a clock of its own, and what it writes."""
    clock, written = [0.0], []
    monkeypatch.setattr(status_line.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(status_line, "_write", written.append)
    return status_line.Busy(), clock, written


def test_silence_is_filled_and_cleared_for_what_is_said(line):
    made, clock, written = line
    made.enter("planning")
    made.clear()
    for clock[0] in (0.3, 0.5):
        made._tick(0, None)
    assert written == []
    clock[0] = 3.2
    made._tick(0, None)
    assert written[-1].endswith("planning  3 s")
    made.clear()
    assert written[-1] == status_line.CLEAR
    clock[0] = 3.7
    made._tick(0, None)
    assert written[-1] == status_line.CLEAR
    made.hold()
    clock[0] = 20
    made._tick(0, None)
    made.release()
    made._tick(0, None)
    assert written[-1] == status_line.CLEAR
    clock[0] = 21.5
    made._tick(0, None)
    assert "planning" in written[-1]


SCRIPT = """
import sys
from candle_convert.convert.console import status_line as busy
from candle_convert.convert.cli.main import main
busy.DELAY, busy.INTERVAL = 0.0, 0.005
main(sys.argv[1:])
"""


def on_terminal(*words):
    """What a command shows on a terminal, and its exit code; silence is filled at once."""
    end, theirs = pty.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *words], **streams, env={**os.environ, "COLUMNS": "80"})
    os.close(theirs)
    found = b""
    while select.select([end], [], [], PATIENCE)[0]:
        try:
            data = os.read(end, 4096)
        except OSError:
            break
        if not data:
            break
        found += data
    os.close(end)
    return found.decode(errors="replace"), process.wait(PATIENCE)


@pytest.fixture
def model(tmp_path, monkeypatch):
    from candle_convert.tests.builders.tiny_llama import written

    monkeypatch.chdir(tmp_path)
    return written(tmp_path / "m.gguf")


def test_a_terminal_sees_what_is_done(model):
    shown, code = on_terminal("convert", "m.gguf", "out", "-t", "safetensors")
    assert code == 0
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] convert  \d s", shown)
    left = re.sub(r"\r\x1b\[K[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏][^\r]*", "", shown)
    assert "files in out" in left
    assert "⠋" not in re.sub(r"\x1b\[K[^\r\x1b]*", "", left)


COMMANDS = [
    ["convert", "m.gguf", "out2", "-t", "safetensors", "-q"],
    ["inspect", "m.gguf", "--json"],
    ["inspect", "none.gguf"],
]


@pytest.mark.parametrize("words", COMMANDS)
def test_nothing_is_left_behind(model, words):
    shown, code = on_terminal(*words)
    frames = re.findall(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", shown)
    assert not frames or shown.rindex(status_line.CLEAR) > max(map(shown.rindex, frames)) - 4
    if "none.gguf" in words:
        assert code == 7
        assert "E-IO-MISSING" in shown
    else:
        assert not frames


def test_without_a_terminal_there_is_no_timer(model):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "inspect", "m.gguf"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
