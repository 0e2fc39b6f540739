"""Valid files of every format with random damage: flipped bits, other bytes, pieces moved, left out and doubled. Only
errors of ours come out."""

import random

import pytest
from candle_convert.tests.builders.sample_files import SAMPLES, rows
from candle_convert.tests.fuzz.sandbox import attempt

MUTANTS = {False: 150, True: 5000}
SANDBOXED = 50
WORDS = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\1",
    b"\0" * 4,
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
    b"\0" * 8,
    b"\xff" * 8,
    b"\xff" * 7 + b"\x7f",
    b"\0" * 7 + b"\x80",
    b"{",
    b'"',
    b"[",
    b"\x80",
    b".",
    b"(",
    b"9999999999",
    b"\x1b[2J",
    b"../",
)
"""Bytes that mean something: limits of integers, and what JSON, pickles, paths and terminals look for."""


def _flip(data, at, chance):
    data[at : at + 1] = bytes(byte ^ 1 << chance.randrange(8) for byte in data[at : at + 1])


def _replace(data, at, chance):
    data[at : at + 1] = chance.randbytes(1)


def _word(data, at, chance):
    word = chance.choice(WORDS)
    data[at : at + len(word)] = word


def _double(data, at, chance):
    start = chance.randrange(len(data) + 1)
    data[at:at] = data[start : start + chance.choice((1, 4, 8, 64))]


def _leave_out(data, at, chance):
    del data[at : at + chance.choice((1, 4, 8, 64))]


def _move(data, at, chance):
    start, length = chance.randrange(len(data) + 1), chance.choice((1, 2, 4, 8, 16))
    data[at : at + length] = data[start : start + length]


DAMAGE = (_flip, _replace, _word, _double, _leave_out, _move)


def mutated(data, chance):
    """`data` with one or a few kinds of damage."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(DAMAGE)(data, chance.randrange(len(data) + 1), chance)
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "name"), rows())
def test_damaged_files_give_our_errors_only(format, name, tmp_path, sandbox, full, seed):
    path = SAMPLES[format][name](tmp_path)
    data, chance = path.read_bytes(), random.Random(f"{seed} {format} {name}")
    for number in range(MUTANTS[full]):
        path.write_bytes(mutated(data, chance))
        error = attempt(path)
        if number % SANDBOXED == 0:
            outcome = sandbox.outcome(path, "read")
            assert (outcome.code, outcome.quick) == ("" if error is None else error.code, True), outcome
