"""Interrupts from the keyboard: exit code 130 and an untouched output from the first import on, whatever is interrupted
and how often."""

import multiprocessing
import os
import signal
import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.console import child_process
from candle_convert.convert.write import staging

PROGRAM = """
import gc, signal, sys


def interrupt(*_):
    signal.raise_signal(signal.SIGINT)


def interrupted(function):
    return lambda *arguments: (interrupt(), function(*arguments))[1]


{where}
from candle_convert.convert.__main__ import main
main()
"""
IMPORTED = """
module = "candle_convert.convert.console.compile_bar"
sys.addaudithook(lambda event, values: event == "import" and values[0] == module and interrupt())
"""
WRITTEN = """
from candle_convert.convert.write import write as writing
writing.fill = lambda *_: exec("interrupt()", {"interrupt": interrupt})
"""
"""Python remembers that code from `exec` was interrupted."""
TWICE = f"""{WRITTEN}
from candle_convert.convert.console.output import Output
Output.interrupted = interrupted(Output.interrupted)
"""
PUBLISHED = """
from candle_convert.convert.write.staging import Staging
Staging.publish = interrupted(Staging.publish)
"""
REPORTED = """
from candle_convert.convert.write import pipeline
pipeline.Report = interrupted(pipeline.Report)
"""
AT_THE_END = "gc.freeze = interrupted(gc.freeze)"
POINTS = [
    ("importing", IMPORTED, 130, "old", ""),
    ("writing", WRITTEN, 130, "old", "interrupted, the output is untouched; to continue: candle-convert"),
    ("twice", TWICE, 130, "old", ""),
    ("publishing", PUBLISHED, 0, "new", ""),
    ("reporting", REPORTED, 130, "new", "interrupted, the output is complete\n"),
    ("ending", AT_THE_END, 0, "new", ""),
]


@pytest.mark.parametrize(("point", "where", "code", "output", "said"), POINTS, ids=[row[0] for row in POINTS])
def test_interrupts(tmp_path, point, where, code, output, said):
    source, target = tmp_path / "in.safetensors", tmp_path / "out.npz"
    cc.save_file({"w": np.ones((3, 4), np.float32)}, source)
    target.write_bytes(b"old")
    words = [sys.executable, "-c", PROGRAM.replace("{where}", where), "convert", str(source), str(target), "--force"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    others = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith(" next ")]
    assert (said in done.stderr) if said else not others, done.stderr
    assert "Traceback" not in done.stderr
    assert (target.read_bytes() == b"old") == (output == "old")


def test_a_journal_that_another_run_removes_is_made_again(tmp_path, monkeypatch):
    flock, calls = staging.fcntl.flock, []

    def slowly(file, how):
        if not calls:
            os.unlink(file.name)
        calls.append(how)
        return flock(file, how)

    cc.save_file({"w": np.ones(3)}, tmp_path / "in.safetensors")
    made = cc.plan(tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    monkeypatch.setattr(staging.fcntl, "flock", slowly)
    place = staging.Staging(made.folder, made.name, made.files, made.fingerprint)
    place.open(resume=False)
    assert len(calls) == 2
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-BUSY"):
        staging.Staging(made.folder, made.name, made.files, made.fingerprint).open(resume=False)
    place.discard()


def test_processes_of_ours_are_not_interrupted():
    process = multiprocessing.get_context("spawn").Process(target=signal.raise_signal, args=(signal.SIGINT,))
    child_process.start(process)
    process.join()
    assert process.exitcode == 0
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
