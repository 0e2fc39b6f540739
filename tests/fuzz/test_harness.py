"""The fuzzing harness tells every way to end wrong: bugs, signals, tracebacks, time, memory."""

import random
import sys

import pytest
from candle_convert.tests.fuzz.harness import Case, Forkserver, sweep

HERE = "candle_convert.tests.fuzz.test_harness"
ENDINGS = {
    "fails": "ends with 70",
    "dies": "ends with -11",
    "spins": "ends with -24",
    "grows": "takes 2",
    "prints": "prints a traceback",
    "refuses": None,
    "passes": None,
}


def fails():
    raise KeyError("x")


def dies():
    import ctypes

    ctypes.string_at(0)


def spins():
    while True:
        pass


def grows():
    return len(bytearray(b"x") * (300 << 20)) * 0


def prints():
    print("thread '<unnamed>' panicked at src/lib.rs", file=sys.stderr)


def refuses():
    import candle_convert as cc

    raise cc.FormatError("E-X", None, "is not a model")


def passes():
    return 0


def test_every_wrong_ending_is_told():
    """Only what never ends has a short time: others may import for longer than that."""
    with Forkserver() as server, Forkserver(seconds=1) as short:
        for name, wanted in ENDINGS.items():
            case = Case({"a/b.txt": b"x"}, [(f"{HERE}:{name}",)])
            [outcome] = (short if name == "spins" else server).run(case)
            fault = outcome.fault()
            assert (fault is None) if wanted is None else (fault or "").startswith(wanted), (name, outcome)


def test_commands_run_on_the_files_of_a_case():
    with Forkserver() as server:
        case = Case(
            {"a.npy": b"x" * 100},
            [("inspect", "{dir}/a.npy"), ("scan", "{dir}"), ("convert", "{dir}/a.npy", "{out}/a.gguf")],
        )
        assert [outcome.code for outcome in server.run(case)] == [3, 3, 3]


def test_a_sweep_names_the_seed_and_the_line():
    def make(draw: random.Random) -> Case:
        return Case({}, [(f"{HERE}:fails" if draw.random() < 0.5 else f"{HERE}:passes",)])

    with pytest.raises(AssertionError, match=r"seed \d+: .*ends with 70(?s:.*)KeyError"):
        sweep(make, False, count=6)
