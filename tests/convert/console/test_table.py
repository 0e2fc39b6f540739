"""Tables fit the terminal: sizes first, names last and cut in the middle, prose wrapped below; a pipe gets
everything."""

import unicodedata

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.console import table
from candle_convert.runtime.base.units import human_count
from candle_convert.tests.builders.onnx_files import perceptron
from candle_convert.tests.builders.tiny_llama import written

LONG = "model.language_model.layers.{}.self_attention.q_proj.weight"
COMMANDS = [
    "inspect m.safetensors",
    "inspect net.onnx --nodes",
    "diff m.safetensors n.safetensors --all",
    "diff m.safetensors q.gguf",
    "verify m.safetensors q.gguf --all",
    "verify net.onnx net.onnx",
    "check m.safetensors n.safetensors bad.safetensors",
    "scan .",
    "quantize m.safetensors o.gguf Q4_0 --dry-run",
    "run net.onnx",
    "profile net.onnx --runs 1",
    "types",
    "types --format gguf",
    "formats",
    "recipes list",
    "models list",
    "models show gemma3",
    "models show lm.gguf",
    "ops",
    "ops net.onnx",
    "metadata show lm.gguf",
    "doctor",
    "tokenizer show lm.gguf",
    "tokenizer show lm.gguf --tokens a",
    "tokenizer encode lm.gguf hello",
    "cache info",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    random = np.random.default_rng(0)
    arrays = {LONG.format(i): random.standard_normal((8, 32)).astype(np.float32) for i in range(3)}
    arrays["\u6a21\u578b.\u6743\u91cd" * 3] = np.full((2, 32), np.nan, np.float32)
    cc.save_file(arrays, folder / "m.safetensors")
    cc.save_file({name: array + 1 for name, array in arrays.items()}, folder / "n.safetensors")
    (folder / "bad.safetensors").write_bytes((folder / "m.safetensors").read_bytes()[:-3])
    cc.quantize(folder / "m.safetensors", folder / "q.gguf", cc.Recipe("Q8_0", pure=True), nan="keep")
    perceptron(folder / "net.onnx")
    written(folder / "lm.gguf")
    return folder


def columns(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("line", COMMANDS)
def test_every_table_fits(line, width, folder, capsys, monkeypatch):
    shown = []
    real = table.aligned

    def noted(*args, **options):
        lines = real(*args, **options)
        shown.extend(lines)
        return lines

    for module in ("console.output", "compare.diff", "compare.certificate", "check.finding", "quantize.table"):
        monkeypatch.setattr(f"candle_convert.convert.{module}.aligned", noted)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(line.split()) in (0, 1, 3, 5), capsys.readouterr()
    said = capsys.readouterr().out
    assert shown
    assert all(text in said for text in shown)
    assert max(map(columns, shown)) <= width


def test_a_pipe_gets_whole_names(folder, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(folder)
    assert run(["inspect", "m.safetensors"]) == 0
    said = capsys.readouterr().out
    assert LONG.format(2) in said
    assert "\n1.00 KiB  f32    [8, 32]  model." in said


ROWS = [("1.00 KiB", "f32", "a" * 30 + "b" * 30, "one sentence of some length"), ("22.00 MiB", "f16", "short", "")]


def test_names_lose_their_middle_and_numbers_nothing():
    lines = table.aligned(("size", "dtype", "name", "why"), ROWS, right=(0,), prose=(3,), width=40)
    assert lines == [
        "     size  dtype  name",
        " 1.00 KiB  f32    aaaaaaaaaaa…bbbbbbbbbb",
        "    one sentence of some length",
        "22.00 MiB  f16    short",
    ]
    wide = table.aligned(("size", "dtype", "name", "why"), ROWS, right=(0,), prose=(3,), width=200)
    assert wide[1].endswith("bbb  one sentence of some length")


def test_what_is_empty_or_optional_goes_first():
    rows = [("x", "", "long " * 10, "1")]
    assert table.aligned(("name", "none", "more", "n"), rows, right=(3,), optional=(2,), width=30) == [
        "name  n",
        "x     1",
    ]


def test_a_terminal_that_is_too_narrow_gets_lines():
    rows = [tuple(str(number) * 9 for number in range(6))]
    lines = table.aligned(tuple("abcdef"), rows, right=range(6), width=30)
    assert max(map(len, lines)) <= 30
    assert (
        " ".join(lines).split()
        == " ".join(f"{name} {cell}," for name, cell in zip("abcdef", rows[0], strict=True))[:-1].split()
    )


@pytest.mark.parametrize(
    ("columns", "found"), [("", None), ("x", None), ("-3", None), ("0", None), ("55", 55), ("3", 20)]
)
def test_the_width_is_that_of_the_terminal(columns, found, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert table.terminal_width() == found


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1"), (999, "999"), (1000, "1 K"), (115_264, "115 K"), (268_098_176, "268 M"), (8_030_261_248, "8.03 B")],
)
def test_counts_are_read_by_people(count, text):
    assert human_count(count) == text


def test_inspect_shows_the_parameters(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert run(["inspect", "lm.gguf"]) == 0
    assert "gguf · 1 file · 21 tensors · 115 K parameters · 450.25 KiB" in capsys.readouterr().out
    cc.quantize("lm.gguf", "small.gguf", cc.Recipe("Q4_0", pure=True), force=True)
    assert (
        cc.open("small.gguf").parameters
        == cc.open("lm.gguf").parameters
        == sum(array.size for array in cc.load_file("lm.gguf").values())
    )
