"""Editing metadata: typed values come back, tensors stay as they are, and nothing is lost without a word."""

import json
import os

import candle_convert as cc
import gguf
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.open.detect_format import formats
from candle_convert.convert.translate import metadata_value
from candle_convert.runtime.contract.metadata import to_json
from safetensors import safe_open

ARRAYS = {"a.weight": np.arange(64, dtype=np.float32).reshape(2, 32), "b.bias": np.ones(32, np.float16)}


@pytest.fixture
def path(tmp_path):
    cc.save_file(ARRAYS, tmp_path / "m.safetensors", metadata={"format": "pt", "name": "old"})
    return tmp_path / "m.safetensors"


def keys(path):
    return {key: to_json(value) for key, value in cc.open(path).metadata.items()}


VALUES = [
    ("5", "u32", np.uint32(5)),
    ("0x10", "u8", np.uint8(16)),
    ("-5", "i64", np.int64(-5)),
    ("1e-6", "f32", np.float32(1e-6)),
    ("1e-6", "f64", np.float64(1e-6)),
    ("true", "bool", True),
    ("False", "bool", False),
    ("5", "str", "5"),
    ("", "str", ""),
    ("[1, 2]", "i32[]", np.array([1, 2], np.int32)),
    ("[]", "u8[]", np.array([], np.uint8)),
    ("[1, 2.5]", "f32[]", np.array([1, 2.5], np.float32)),
    ("[true]", "bool[]", np.array([True])),
    ('["a", "b"]', "str[]", ["a", "b"]),
    ('{"a": [1, null]}', "json", {"a": [1, None]}),
    ("héllo \x1b[31m\n{% x %}", None, "héllo \x1b[31m\n{% x %}"),
]


@pytest.mark.parametrize(("text", "kind", "value"), VALUES)
def test_values_have_types(path, text, kind, value):
    assert to_json(metadata_value.typed(text, kind)) == to_json(value)
    assert type(metadata_value.typed(text, kind)) is type(value)
    before = cc.hash(path)
    assert run(["metadata", "set", str(path), "key", text, *(["--type", kind] if kind else [])]) == 0
    assert keys(path) == {"format": "pt", "name": "old", "key": to_json(value)}
    assert cc.hash(path) == before


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", "u32"),
        ("300", "u8"),
        ("-1", "u64"),
        ("1.5", "i32"),
        ("maybe", "bool"),
        ("[1", "json"),
        ("NaN", "json"),
        ("1", "i32[]"),
        ("[1.5]", "i32[]"),
        ("[true]", "i32[]"),
        ("[300]", "u8[]"),
        ("[1]", "str[]"),
        ("1", "u128"),
        ("1", "json[]"),
        ("[" * 100000, "json"),
    ],
)
def test_values_that_do_not_fit_are_refused(path, text, kind):
    before = path.read_bytes()
    assert run(["metadata", "set", str(path), "key", text, "--type", kind]) == 2
    assert path.read_bytes() == before


def test_the_old_values_type_is_kept(path):
    assert run(["metadata", "set", str(path), "n", "5", "--type", "u32"]) == 0
    assert run(["metadata", "set", str(path), "n", "-6"]) == 2
    assert run(["metadata", "set", str(path), "n", "6"]) == 0
    assert keys(path)["n"] == to_json(np.uint32(6))
    assert run(["metadata", "set", str(path), "name", "7"]) == 0
    assert keys(path)["name"] == "7"


def test_a_file_is_rewritten_in_place_and_keeps_its_permissions(path, capsys):
    path.chmod(0o600)
    assert run(["metadata", "set", str(path), "name", "new", "--dry-run"]) == 0
    assert keys(path)["name"] == "old"
    assert run(["metadata", "set", str(path), "name", "new", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["changes"] == [{"key": "name", "type": "str", "old": "old", "new": "new"}]
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert list(keys(path)) == ["format", "name"]


def test_another_output_leaves_the_input(path, tmp_path):
    before = path.read_bytes()
    other = tmp_path / "other.safetensors"
    assert run(["metadata", "unset", str(path), "name", "-o", str(other)]) == 0
    assert (keys(other), path.read_bytes()) == ({"format": "pt"}, before)
    assert run(["metadata", "unset", str(path), "name", "-o", str(other)]) == 5
    assert run(["metadata", "unset", str(path), "name", "-o", str(other), "--force"]) == 0


def test_unset_get_and_copy(path, tmp_path, capsys):
    assert run(["metadata", "get", str(path), "name"]) == 0
    assert capsys.readouterr().out == "old\n"
    assert run(["metadata", "unset", str(path), "name"]) == 0
    assert run(["metadata", "unset", str(path), "name"]) == 2
    assert run(["metadata", "get", str(path), "name"]) == 1
    donor = tmp_path / "donor.safetensors"
    cc.save_file({"x": np.ones(1)}, donor, metadata={"name": "donor", "format": "np", "extra": "1"})
    assert run(["metadata", "copy", str(donor), str(path), "--include", "^(name|format)$", "--exclude", "format"]) == 0
    assert keys(path) == {"format": "pt", "name": "donor"}
    assert run(["metadata", "copy", str(donor), str(path)]) == 0
    assert keys(path) == {"format": "np", "name": "donor", "extra": "1"}
    assert set(cc.open(path)) == set(ARRAYS)


def test_show_cuts_long_values_and_escapes_them(path, capsys):
    assert run(["metadata", "set", str(path), "long", "x" * 5000 + "\x1b[2J"]) == 0
    capsys.readouterr()
    assert run(["metadata", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "x…" in shown
    assert len(shown) < 500
    assert run(["metadata", "show", str(path), "--full", "--include", "long"]) == 0
    shown = capsys.readouterr().out
    assert "x" * 5000 + "\\x1b[2J" in shown
    assert "name" not in shown


@pytest.mark.parametrize(
    "format",
    [format for format in formats() if format.layout and not format.graphs and not format.architecture],
    ids=lambda format: format.name,
)
def test_every_format_holds_a_key_or_says_that_it_cannot(tmp_path, format):
    path = tmp_path / f"m{format.suffixes[0]}"
    cc.save_file(ARRAYS, path, format=format.name)
    before, content = path.read_bytes(), cc.hash(path)
    code = run(["metadata", "set", str(path), "general.name", "A model", "--force"])
    if code == 0:
        assert cc.open(path).metadata["general.name"] == "A model"
        assert cc.hash(path) == content
    else:
        assert code == 4
        assert path.read_bytes() == before


def test_a_model_of_several_files_needs_an_output(path, tmp_path):
    assert run(["split", str(path), f"{tmp_path}/parts/", "--shard-tensors", "1"]) == 0
    parts = tmp_path / "parts"
    assert run(["metadata", "set", str(parts), "name", "new"]) == 5
    assert run(["metadata", "set", str(parts), "name", "new", "-o", str(tmp_path / "whole.safetensors")]) == 0
    assert keys(tmp_path / "whole.safetensors")["name"] == "new"


def test_a_file_of_any_name_is_rewritten_under_it(path, tmp_path):
    for name in ("weights", "weights.data"):
        cc.save_file(ARRAYS, path)
        path.rename(tmp_path / name)
        assert run(["metadata", "set", str(tmp_path / name), "a", "b"]) == 0
        assert keys(tmp_path / name) == {"a": "b"}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["weights", "weights.data"]


@pytest.mark.parametrize(("text", "kind", "value"), [row for row in VALUES if row[1] not in ("json", None)])
def test_gguf_reads_what_was_set(tmp_path, text, kind, value):
    path = tmp_path / "m.gguf"
    cc.save_file(ARRAYS, path)
    before = cc.hash(path)
    assert run(["metadata", "set", str(path), "x.key", text, "--type", kind]) == 0
    field = gguf.GGUFReader(path).fields["x.key"]
    found = field.contents()
    assert np.array_equal(found, value)
    wanted = {"u": "UINT", "i": "INT", "f": "FLOAT", "b": "BOOL", "s": "STRING"}[kind[0]] + "".join(
        filter(str.isdigit, kind)
    )
    assert field.types[-1].name == wanted or not np.size(value)
    assert cc.hash(path) == before


def test_safetensors_reads_what_was_set(path):
    assert run(["metadata", "set", str(path), "licence", "mit"]) == 0
    with safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt", "name": "old", "licence": "mit"}
        assert all(np.array_equal(file.get_tensor(name), array) for name, array in ARRAYS.items())
