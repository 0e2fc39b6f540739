"""Outputs under difficult conditions: over the input, on a full or read-only disk, hostile names and values. The old
file stays until the end."""

import json
import os
import shutil
import struct
import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.open.detect_format import formats
from candle_convert.runtime.passes.weights.select import Select
from safetensors.numpy import save_file

WRITTEN = [format for format in formats() if format.layout is not None and not (format.graphs or format.architecture)]
IDS = [format.name for format in WRITTEN]
ARRAYS = {"a.weight": np.arange(600, dtype=np.float32).reshape(20, 30), "b": np.arange(7, dtype=np.int32)}
NAN = {**ARRAYS, "nan": np.array([1, np.nan], np.float32)}


def _saved(path, arrays=ARRAYS):
    cc.save_file(arrays, path)
    return path


def _equal(path, arrays=ARRAYS):
    graph = cc.open(path)
    return set(graph) == set(arrays) and all(
        np.array_equal(graph[name].numpy(), array) for name, array in arrays.items()
    )


@pytest.mark.parametrize("format", WRITTEN, ids=IDS)
def test_hostile_97_output_over_the_input(format, tmp_path):
    path = _saved(tmp_path / f"x{format.suffixes[0]}")
    old = path.read_bytes()
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-EXISTS"):
        cc.convert(path, path)
    assert path.read_bytes() == old
    cc.convert(path, path, force=True, dtype="f16", verify="full")
    assert _equal(path, {"a.weight": ARRAYS["a.weight"].astype(np.float16), "b": ARRAYS["b"]})
    assert os.listdir(tmp_path) == [path.name]


def test_hostile_97_output_over_the_input_through_a_link(tmp_path):
    path = _saved(tmp_path / "x.safetensors")
    (tmp_path / "link.safetensors").symlink_to("x.safetensors")
    cc.convert(path, tmp_path / "link.safetensors", force=True, verify="full")
    assert _equal(path)
    assert _equal(tmp_path / "link.safetensors")


@pytest.mark.parametrize("target", WRITTEN, ids=IDS)
def test_hostile_97_a_failing_run_over_the_input_leaves_it(target, tmp_path):
    path = _saved(tmp_path / f"x{target.suffixes[0]}", NAN)
    old = path.read_bytes()
    with pytest.raises(cc.FormatError, match="E-NAN"):
        cc.convert(path, path, force=True, dtype="f16")
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == [path.name]


def test_hostile_97_a_directory_over_itself(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({f"w{number}": np.full(50, number, np.float32) for number in range(9)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    before = cc.hash(folder)
    cc.convert(folder, folder, to="safetensors", force=True, verify="full")
    assert cc.hash(folder) == before
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
    assert (folder / "config.json").read_text() == "{}"


def _mount(folder, size):
    """A small file system of its own, where the machine allows it."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path):
    """A folder with room for 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        _mount(folder, "1m")
    except FileNotFoundError:
        pytest.skip("no mount command here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_hostile_97_a_full_disk(small_disk, tmp_path):
    target = small_disk / "x.safetensors"
    target.write_bytes(b"old")
    source = _saved(tmp_path / "x.safetensors", {"x": np.zeros(1 << 20, np.float32)})
    for output in (target, small_disk / "y.npz"):
        with pytest.raises(cc.LimitError, match="E-OUT-FULL"):
            cc.convert(source, output, force=True)
    assert target.read_bytes() == b"old"
    assert os.listdir(small_disk) == [target.name]


def test_hostile_97_a_disk_that_fills_up_meanwhile(small_disk, tmp_path, monkeypatch):
    target = small_disk / "x.safetensors"
    target.write_bytes(b"old")
    source = _saved(tmp_path / "x.safetensors", {"x": np.zeros(1 << 20, np.float32)})
    made = cc.plan(source, target, force=True)
    monkeypatch.setattr(type(made), "disk_free", property(lambda plan: 1 << 40))
    with pytest.raises(cc.LimitError, match="E-OUT-FULL"):
        cc.convert(source, target, force=True)
    assert target.read_bytes() == b"old"


def test_hostile_97_a_folder_that_cannot_be_written(tmp_path):
    source, folder = _saved(tmp_path / "x.safetensors"), tmp_path / "locked"
    folder.mkdir(0o555)
    command = [sys.executable, "-m", "candle_convert.convert", str(source), str(folder / "out.safetensors"), "--json"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and there is no setpriv to take that away")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 7, done.stdout + done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "E-OUT-WRITE"
    assert os.listdir(folder) == []


HOSTILE_NAMES = (
    "../../escape",
    "/etc/passwd",
    "a/../b",
    "..",
    ".",
    "C:\\x",
    "back\\slash",
    "new\nline",
    "\x1b[31mred\x1b[0m",
    "tab\t",
    "\x7f",
    "a b",
    "-rf",
    "__metadata__.json",
    "con",
    "x.npy",
    "data.pkl",
    "'; drop",
    "ünï",
    "\u202eright to left",
    "a" * 60,
)


NOT_IN_ZIP = {"../../escape", "/etc/passwd", "a/../b", "C:\\x", "back\\slash"}


def test_hostile_98_names_that_lead_out_of_an_archive_are_refused(tmp_path):
    for number, name in enumerate(NOT_IN_ZIP):
        source = tmp_path / f"{number}.safetensors"
        save_file({name: np.zeros(2)}, source)
        with pytest.raises(cc.UnsupportedError, match="E-ZIP-NAME"):
            cc.convert(source, tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("format", WRITTEN, ids=IDS)
def test_hostile_98_names_are_carried_and_never_shown_raw(format, tmp_path, capsys):
    from candle_convert.convert.cli.main import run

    source = tmp_path / "x.safetensors"
    names = [name for name in HOSTILE_NAMES if format.name != "npz" or name not in NOT_IN_ZIP]
    save_file({name: np.full(2, number, np.float32) for number, name in enumerate(names)}, source)
    target = tmp_path / "out" / f"y{format.suffixes[0]}"
    (tmp_path / "out").mkdir()
    assert run([str(source), str(target)]) == 0
    assert os.listdir(tmp_path / "out") == [target.name]
    graph = cc.open(target)
    assert {name: graph[name].numpy()[0] for name in graph} == {name: number for number, name in enumerate(names)}
    capsys.readouterr()
    for command in (["inspect"], ["ls"], ["check"], ["scan"], ["hash"], ["diff", str(source)], ["print"]):
        run([command[0], str(target), *command[1:], *(["new\nline"] if command == ["print"] else [])])
        shown = capsys.readouterr()
        raw = [char for char in shown.out + shown.err if not char.isprintable() and char != "\n"]
        assert not raw, (command, raw)
        assert not any(line.startswith("line") for line in shown.out.split("\n")), command


def test_hostile_98_names_of_attached_files_stay_in_the_folder(tmp_path):
    names = (
        "../evil.json",
        "/evil.json",
        "a\\b.json",
        "..",
        "",
        "nul\0.json",
        "sub/x",
        "model.safetensors",
        "x" * 400 + ".json",
        "\x1b[2J.json",
    )
    for number, name in enumerate(names):
        source, target = tmp_path / f"{number}.safetensors", tmp_path / "deep" / f"{number}"
        save_file(ARRAYS, source, {"candle_convert.files": json.dumps({name: "evil"})})
        try:
            cc.convert(source, target, to="safetensors")
        except cc.Error:
            assert not target.exists() or all(".partial" in left for left in os.listdir(target)), name
            continue
        assert _equal(target), name
        assert set(os.listdir(target)) <= {"model.safetensors", name}, name
    assert sorted(os.listdir(tmp_path)) == sorted([*(f"{number}.safetensors" for number in range(len(names))), "deep"])


POLICIES = [
    ("error", "f16", None),
    ("warn", "f16", {"W-NAN", "W-OVERFLOW"}),
    ("keep", "f16", {"W-OVERFLOW"}),
    ("warn", "bf16", {"W-NAN"}),
    ("warn", "f8_e4m3", {"W-NAN", "W-OVERFLOW"}),
]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("policy", "dtype", "codes"), POLICIES)
@pytest.mark.parametrize(
    "format", [format for format in WRITTEN if format.name != "gguf"], ids=lambda format: format.name
)
def test_nan_and_overflow_by_tensor(format, policy, dtype, codes, threads, tmp_path):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(300_000).astype(np.float32)
    nans, large = values.copy(), values.copy()
    nans[[0, 7, 299_999]] = np.nan
    large[[3, 150_000]] = [1e30, -1e30]
    source = _saved(
        tmp_path / f"x{format.suffixes[0]}", {"clean": values, "nans": nans, "large": large, "ids": np.arange(3)}
    )
    target = tmp_path / f"y{format.suffixes[0]}"
    if codes is None:
        with pytest.raises(cc.FormatError, match=r"'nans' holds NaN at element 0") as caught:
            cc.convert(source, target, dtype=dtype, nan=policy, threads=threads)
        assert "--nan" in caught.value.hint
        assert not target.exists()
        return
    report = cc.convert(source, target, dtype=dtype, nan=policy, threads=threads, verify="full")
    found = {note.code: note for note in report.notes}
    assert set(found) == codes
    assert "W-NAN" not in codes or (found["W-NAN"].tensor, found["W-NAN"].message[:2]) == ("nans", "3 ")
    assert "W-OVERFLOW" not in codes or (found["W-OVERFLOW"].tensor, found["W-OVERFLOW"].message[:2]) == ("large", "2 ")
    with np.errstate(all="ignore"):
        expected = nans.astype(cc.open(target)["nans"].dtype.as_numpy())
    assert cc.open(target)["nans"].numpy().tobytes() == expected.tobytes()


def test_a_source_cut_off_between_plan_and_writing_is_an_error(tmp_path):
    text = json.dumps({"x": {"dtype": "F32", "shape": [1 << 20], "data_offsets": [0, 1 << 22]}}).encode()
    source = tmp_path / "x.safetensors"
    source.write_bytes(struct.pack("<Q", len(text)) + text + bytes(1 << 22))
    from candle_convert.convert.write import pipeline

    for name, changes in (("copied", {}), ("cast", {"dtype": "f16"})):
        os.truncate(source, 8 + len(text) + (1 << 22))
        made = cc.plan(source, tmp_path / f"{name}.safetensors", **changes)
        os.truncate(source, 5000)
        with pytest.raises(cc.FileAccessError, match="E-IO-SHRANK"):
            pipeline.execute(made)
        assert not (tmp_path / f"{name}.safetensors").exists()


HELD = [
    "model.safetensors",
    "MODEL.safetensors",
    "pytorch_model.bin",
    "model.safetensors.index.json",
    "model.partial",
    "code.py",
    "noname",
]


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("shards", [None, 1])
def test_files_that_a_model_carries_never_become_weights_or_code(tmp_path, name, shards):
    files = {"candle_convert.files": json.dumps({name: "text", "config.json": "{}"})}
    save_file(ARRAYS, tmp_path / "in.safetensors", metadata=files)
    assert set(cc.open(tmp_path / "in.safetensors").attachments) == {name, "config.json"}
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-NAME"):
        cc.convert(tmp_path / "in.safetensors", tmp_path / "out", to="safetensors", shard_tensors=shards)
    assert not (tmp_path / "out").exists()
    cc.convert(tmp_path / "in.safetensors", tmp_path / "out", to="safetensors", shard_tensors=shards, attachments=False)
    assert cc.hash(tmp_path / "out") == cc.hash(tmp_path / "in.safetensors")


def test_what_was_begun_under_other_names_is_not_resumed(tmp_path, monkeypatch):
    source = _saved(tmp_path / "in.safetensors", {"a": np.ones(9, np.float32), "b": np.zeros(9, np.float32)})
    target = tmp_path / "out.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr("candle_convert.convert.write.pipeline.verify", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            cc.convert(source, target)
    exchanged = Select(names=(("a", "b"), ("b", "a")))
    cc.convert(source, target, select=exchanged, resume=True)
    assert np.array_equal(cc.open(target)["b"].numpy(), np.ones(9, np.float32))


def _interrupted(*_):
    raise KeyboardInterrupt
