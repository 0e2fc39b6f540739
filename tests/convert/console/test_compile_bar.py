"""The compile bar: a terminal sees it move before the first kernel is compiled; elsewhere it is one line."""

import os
import pty
import re
import select
import subprocess
import sys

SCRIPT = """
import time
from candle_convert.convert.console.compile_bar import CompileBar
from candle_convert.runtime.base.compile_progress import on_compile
from candle_convert.runtime.execute import compile_ahead
from candle_convert.runtime.execute.compile_estimate import Work

compile_ahead.cores = lambda: 2
on_compile(CompileBar())
for count in (3, 1):
    compile_ahead.run_all([lambda: time.sleep(1.2)] * count, [Work(1.0)] * count)
"""
LINE = "compiling {} for this processor, once per machine"


def command(**streams):
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    return subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, **streams)


def test_a_terminal_sees_it_move_from_the_first_second():
    end, theirs = pty.openpty()
    process = command(stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while select.select([end], [], [], 60)[0]:
        try:
            data = os.read(end, 4096)
        except OSError:
            break
        shown += data
    os.close(end)
    assert process.wait(60) == 0
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.decode(errors="replace"))
    assert LINE.format("3 kernels") in text
    assert LINE.format("1 kernel") in text
    frames = re.findall(r"(\d+)% +(\d+) s left", text)
    assert len({int(share) for share, _ in frames}) > 8
    assert min(int(share) for share, _ in frames) < 10
    assert [int(share) for share, _ in frames][:4] == sorted(int(share) for share, _ in frames[:4])


def test_elsewhere_it_is_one_line():
    said = command(stderr=subprocess.PIPE).communicate(timeout=60)[1].decode().splitlines()
    assert [re.sub(r": about \d+ s$", "", line) for line in said] == [LINE.format("3 kernels"), LINE.format("1 kernel")]
