"""Splitting and merging: what is split merges to the same tensors, sets are checked to be whole, and no input is ever
written to."""

import json
import shutil

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cli.main import run
from candle_convert.convert.open.detect_format import formats

ARRAYS = {f"layer.{i}.weight": np.random.default_rng(i).standard_normal((8, 32)).astype(np.float32) for i in range(5)}
SHARDED = [
    "safetensors",
    *(name for name in ("gguf",) if any(format.name == name and format.layout for format in formats())),
]


@pytest.fixture(params=SHARDED)
def whole(request, tmp_path):
    """A model in one file."""
    cc.save_file(ARRAYS, tmp_path / "source.safetensors", metadata={"made": "here"})
    path = tmp_path / f"big.{request.param}"
    cc.convert(tmp_path / "source.safetensors", path)
    return path


def state(folder):
    """The bytes of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def shards(folder, whole):
    return sorted(folder.glob(f"*-of-*{whole.suffix}"))


@pytest.mark.parametrize(
    "size", [["--shard-tensors", "2"], ["--shard-size", "2KB"], ["--max-shard-size", "2100", "--shard-tensors", "9"]]
)
def test_split_then_merge_is_the_same_model(whole, tmp_path, size):
    assert run(["split", str(whole), f"{tmp_path}/parts/", *size]) == 0
    parts = shards(tmp_path / "parts", whole)
    assert [part.name for part in parts] == [
        f"big-{number:05d}-of-{len(parts):05d}{whole.suffix}" for number in range(1, len(parts) + 1)
    ]
    assert len(parts) in (3, 5)
    assert run(["merge", str(parts[0]), str(tmp_path / f"joined{whole.suffix}")]) == 0
    assert (tmp_path / f"joined{whole.suffix}").read_bytes() == whole.read_bytes()
    assert run(["merge", *map(str, parts), str(tmp_path / f"again{whole.suffix}")]) == 0
    assert (tmp_path / f"again{whole.suffix}").read_bytes() == whole.read_bytes()
    assert run(["merge", str(tmp_path / "parts"), str(tmp_path / f"folder{whole.suffix}")]) == 0
    assert (tmp_path / f"folder{whole.suffix}").read_bytes() == whole.read_bytes()


def test_a_name_gets_numbers(whole, tmp_path):
    assert run(["split", str(whole), str(tmp_path / f"out/name{whole.suffix}"), "--shard-tensors", "4"]) == 0
    assert [path.name for path in shards(tmp_path / "out", whole)] == [
        f"name-0000{number}-of-00002{whole.suffix}" for number in (1, 2)
    ]


def test_shards_are_cut_anew(whole, tmp_path):
    assert run(["split", str(whole), f"{tmp_path}/parts/", "--shard-tensors", "2"]) == 0
    first = shards(tmp_path / "parts", whole)[0]
    assert run(["merge", str(first), str(tmp_path / f"one{whole.suffix}")]) == 0
    before = state(tmp_path / "parts")
    again = [
        "split",
        str(tmp_path / f"one{whole.suffix}"),
        str(tmp_path / "parts" / whole.name),
        "--shard-tensors",
        "2",
    ]
    assert run(again) == 5
    assert state(tmp_path / "parts") == before
    assert run([*again, "--force"]) == 0
    assert state(tmp_path / "parts") == before


def test_a_directory_splits_with_its_files(tmp_path):
    (tmp_path / "model").mkdir()
    cc.save_file(ARRAYS, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "config.json").write_text("{}")
    assert run(["split", str(tmp_path / "model"), str(tmp_path / "out"), "--shard-tensors", "3"]) == 0
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json",
        *names,
        "model.safetensors.index.json",
    ]
    assert cc.hash(tmp_path / "out") == cc.hash(tmp_path / "model")


def test_merge_refuses_what_is_not_whole(whole, tmp_path):
    parts = tmp_path / "parts"
    assert run(["split", str(whole), f"{parts}/", "--shard-tensors", "2"]) == 0
    out = str(tmp_path / f"out{whole.suffix}")
    one, two, three = shards(parts, whole)
    for name in (one, two, three):
        shutil.move(name, f"{name}.away")
        assert run(["merge", *(str(part) for part in (one, two, three) if part != name), out]) == 7
        shutil.move(f"{name}.away", name)
    kept = two.read_bytes()
    two.write_bytes(one.read_bytes())
    assert run(["merge", str(one), out]) == 3
    two.write_bytes(kept[:-1])
    assert run(["merge", str(one), out]) == 3
    two.write_bytes(kept)
    shutil.copy(one, parts / f"big-00004-of-00003{whole.suffix}")
    assert run(["merge", str(parts / f"big-00004-of-00003{whole.suffix}"), out]) == 3
    assert not (tmp_path / f"out{whole.suffix}").exists()


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_merge_never_writes_to_a_shard(whole, tmp_path, force):
    parts = tmp_path / "parts"
    assert run(["split", str(whole), f"{parts}/", "--shard-tensors", "2"]) == 0
    one, two, three = shards(parts, whole)
    (tmp_path / f"link{whole.suffix}").symlink_to(two)
    (tmp_path / f"hard{whole.suffix}").hardlink_to(two)
    before = state(parts)
    globbed = [str(path) for path in (one, two, three)]
    links = [str(tmp_path / f"{kind}{whole.suffix}") for kind in ("hard", "link")]
    for arguments in (globbed, [str(one), str(three)], [str(parts), str(two)], *([str(one), link] for link in links)):
        assert run(["merge", *arguments, *force]) == 5, arguments
        assert state(parts) == before


def test_dry_runs_write_nothing(whole, tmp_path, capsys):
    before = state(tmp_path)
    assert run(["split", str(whole), f"{tmp_path}/parts/", "--shard-tensors", "2", "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["schema"] == "candle-convert/split/1"
    assert len(planned["outputs"]) >= 3
    assert run(["merge", str(whole), str(tmp_path / f"x{whole.suffix}"), "--dry-run"]) == 0
    assert state(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["split", "IN", "out"], 2),
        (["split", "IN", "out", "--shard-size", "many"], 2),
        (["split", "IN", "out", "--shard-tensors", "0"], 2),
        (["split", "missing.safetensors", "out", "--shard-tensors", "1"], 7),
        (["merge", "IN"], 2),
        (["merge", "x-00001-of-00002.safetensors", "out.safetensors"], 7),
    ],
)
def test_requests_that_make_no_sense(whole, arguments, code, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run([str(whole) if word == "IN" else word for word in arguments]) == code


def test_a_format_of_one_file_is_not_split(tmp_path):
    single = [format for format in formats() if format.layout is not None and format.name == "npz"]
    for format in single:
        cc.save_file(ARRAYS, tmp_path / f"in{format.suffixes[0]}", format=format.name)
        assert (
            run(["split", str(tmp_path / f"in{format.suffixes[0]}"), f"{tmp_path}/parts/", "--shard-tensors", "2"]) == 4
        )
