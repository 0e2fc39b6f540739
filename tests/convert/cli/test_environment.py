"""Variables of the environment with odd values: a command runs, or ends in one line that names the variable."""

import os
import subprocess
import sys

import pytest
from candle_convert.runtime.jit import code_cache
from candle_convert.tests.builders.tiny_llama import written

PROGRAM = "from candle_convert.convert.__main__ import main; main()"
ENCODE = """
import numpy as np
from candle_convert.runtime.base.errors import Error
from candle_convert.runtime.tensor.block_codec import block_type, codec_of, encoded
try:
    print(encoded(codec_of(block_type("q4_0")), np.linspace(-1, 1, 64)[None]).size)
except Error as error:
    print(error.code, error.exit_code, error.hint)
"""
IGNORED = (
    {"CANDLE_CPU": ""},
    {"CANDLE_CUDNN": "x", "CANDLE_TF32": "x", "CANDLE_COMPILE_COST": "/nonexistent/folder/file"},
    {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "xx_XX", "TZ": "no/where", "TERM": "dumb", "LINES": "-1"},
    *({"COLUMNS": columns} for columns in ("0", "-1", "1", "99999999999", "wide")),
    {"HOME": ""},
    {"HOME": "/proc"},
    {"HOME": "file", "XDG_CACHE_HOME": ""},
    {"XDG_CACHE_HOME": "/proc"},
    {"XDG_CACHE_HOME": "file"},
    {"TMPDIR": "/nonexistent"},
    {"TMPDIR": "file", "HF_HOME": "/nonexistent", "HF_HUB_OFFLINE": "x"},
    {"PYTHONWARNINGS": "error"},
    {"OMP_NUM_THREADS": "-3", "OPENBLAS_NUM_THREADS": "x", "CUDA_VISIBLE_DEVICES": "99"},
    {"PATH": ""},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("environment")
    written(folder / "m.gguf")
    (folder / "file").touch()
    return folder


def run(words, folder, environment):
    values = {name: str(folder / value) if value == "file" else value for name, value in environment.items()}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        capture_output=True,
        timeout=200,
        env={name: value for name, value in os.environ.items() if name != "LANG"} | values,
    )


@pytest.mark.parametrize("environment", IGNORED, ids=lambda item: " ".join(item))
def test_odd_values_are_ignored(environment, folder):
    for words in (("doctor", "--json"), ("quantize", "m.gguf", "q.gguf", "Q8_0", "-f"))[
        IGNORED.index(environment) % 2 :
    ]:
        ended = run(words, folder, environment)
        assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False), (words, ended.stderr)


@pytest.mark.parametrize("value", ["foo", "AVX1", "-1"])
def test_levels_that_are_none(value, folder):
    ended = run(("generate", "m.gguf", "-p", "a", "-n", "1"), folder, {"CANDLE_CPU": value})
    assert ended.returncode == 2
    assert f"CANDLE_CPU='{value}'".encode() in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
@pytest.mark.parametrize("variable", ["NUMBA_DISABLE_JIT=1", "NUMBA_NUM_THREADS=0"])
def test_numba_that_may_not_compile(variable, tmp_path):
    name, _, value = variable.partition("=")
    environment = os.environ | {name: value, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ENCODE], env=environment, capture_output=True, text=True, timeout=200)
    assert done.stdout == f"E-NUMBA 2 Unset {name}\n", done.stderr


@pytest.mark.parametrize("columns", ["0" * 5000, "9" * 5000, "0" * 5000 + "80", "\u0668\u0660"], ids=range(4))
def test_columns_of_many_digits(columns, folder):
    """Python does not make numbers of texts of more than 4,300 digits."""
    ended = run(("inspect", "m.gguf"), folder, {"COLUMNS": columns})
    assert (ended.returncode, ended.stderr) == (0, b"")
