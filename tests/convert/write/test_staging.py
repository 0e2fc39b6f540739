"""Writing: killed, interrupted and resumed runs leave the old output intact and end in the same bytes."""

import json
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.console.progress import NoProgress
from candle_convert.convert.write import staging, write

OLD = b"the old output"


def _sparse_model(path, mebibytes, tensors=8):
    """A safetensors file of zeros that takes no room on the disk."""
    length = mebibytes * 2**20 // tensors // 4096 * 4096
    header = {
        f"layers.{number}.weight": {
            "dtype": "F32",
            "shape": [length // 4096, 1024],
            "data_offsets": [number * length, (number + 1) * length],
        }
        for number in range(tensors)
    }
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number in range(tensors):
            file.seek(8 + len(text) + number * length)
            file.write(np.full(64, number + 1, np.float32).tobytes())
        file.truncate(8 + len(text) + tensors * length)
    return path


def _command(source, target, *more):
    command = [
        "-m",
        "candle_convert.convert",
        "convert",
        str(source),
        str(target),
        "--dtype",
        "f16",
        "--threads",
        "1",
        "--verify",
        "none",
        "--force",
    ]
    return [sys.executable, *command, *more]


KILLED = [
    ("model.safetensors", ()),
    ("model.safetensors", ("--shard-size", "20MB")),
    ("model.npz", ()),
    ("model.gguf", ()),
    ("model.pth", ()),
]


@pytest.mark.parametrize(("output", "shards"), KILLED, ids=["safetensors", "shards", "npz", "gguf", "pth"])
def test_killed_at_any_moment_and_resumed(tmp_path, output, shards):
    moments = random.Random(1)
    source = _sparse_model(tmp_path / "in.safetensors", 256)
    reference, target = tmp_path / "reference", tmp_path / "target"
    for folder in (reference, target):
        folder.mkdir()
    began = time.perf_counter()
    subprocess.run(_command(source, reference / output, *shards), check=True, capture_output=True)
    whole = time.perf_counter() - began
    names = sorted(path.name for path in reference.iterdir())
    for name in names:
        (target / name).write_bytes(OLD)
    kills, resumed = 0, 0
    again = _command(source, target / output, *shards, "--resume")
    for _ in range(4):
        process = subprocess.Popen(again, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            process.wait(moments.uniform(0.3, 0.9) * whole)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            journal = target / f"{'model' if shards else output}.partial.journal"
            resumed += journal.exists() and journal.read_text().count("\n") > 1
            for name in names:
                assert (target / name).read_bytes() in (OLD, (reference / name).read_bytes())
            continue
        process.communicate()
        assert process.returncode == 0
        break
    else:
        subprocess.run(again, check=True, capture_output=True)
    print(f"{kills} kills, {resumed} of them with finished jobs on record")
    assert sorted(path.name for path in target.iterdir()) == names
    for name in names:
        assert (target / name).read_bytes() == (reference / name).read_bytes()


def test_resume_writes_only_what_is_missing(tmp_path, monkeypatch):
    source = _sparse_model(tmp_path / "in.safetensors", 8)
    made = cc.plan(source, tmp_path / "out.safetensors", cc.Options(dtype="f16", resume=True))
    jobs = write.jobs_of(made.files)
    place = staging.Staging(made.folder, made.name, made.files, made.fingerprint)
    write.write(place, 1, NoProgress(), resume=False)
    place.close()
    journal = Path(f"{tmp_path}/out.safetensors.partial.journal")
    first, *_ = journal.read_text().splitlines()
    journal.write_text(f"{first}\n{json.dumps([job.number for job in jobs[:-1]])}\n[{jobs[-1].number}")
    written = []
    fill = write.fill
    monkeypatch.setattr(
        write, "fill", lambda handle, job, *rest: written.append(job.number) or fill(handle, job, *rest)
    )
    cc.convert(source, tmp_path / "out.safetensors", dtype="f16", resume=True)
    assert written == [jobs[-1].number]
    cc.convert(source, tmp_path / "again.safetensors", dtype="f16")
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()


def test_a_journal_of_another_plan_is_not_used(tmp_path):
    source = _sparse_model(tmp_path / "in.safetensors", 8)
    (tmp_path / "out.safetensors.partial").write_bytes(b"x" * 100)
    (tmp_path / "out.safetensors.partial.journal").write_text('{"plan": "other"}\n[0, 1, 2, 3]\n')
    cc.convert(source, tmp_path / "out.safetensors", resume=True, verify="full")
    assert cc.hash(source) == cc.hash(tmp_path / "out.safetensors")


@pytest.mark.parametrize("text", ["", "not json\n", "[1]\n", '{"plan": 5}\n'])
def test_a_damaged_journal_starts_anew(tmp_path, text):
    source = _sparse_model(tmp_path / "in.safetensors", 1)
    (tmp_path / "out.safetensors.partial.journal").write_text(text)
    cc.convert(source, tmp_path / "out.safetensors", resume=True, verify="full")


def test_a_folder_is_for_one_run(tmp_path):
    folder = tmp_path / "out.partial"
    (folder / "left").mkdir(parents=True)
    with staging.locked_folder(folder):
        assert not list(folder.iterdir())
        with pytest.raises(cc.UnsafeFileError, match="E-OUT-BUSY"), staging.locked_folder(folder):
            pass
        folder.rename(tmp_path / "out")
        with staging.locked_folder(folder):
            pass
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-LINK"), staging.locked_folder(tmp_path / "link"):
        pass


def test_two_runs_on_one_output_do_not_mix(tmp_path):
    source = _sparse_model(tmp_path / "in.safetensors", 1)
    made = cc.plan(source, tmp_path / "out.safetensors")
    place = staging.Staging(made.folder, made.name, made.files, made.fingerprint)
    place.open(resume=False)
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-BUSY"):
        cc.convert(source, tmp_path / "out.safetensors")
    place.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


INTERRUPTED = """
import signal, threading
from candle_convert.convert.write import write as writing
from candle_convert.convert.__main__ import main

fill, begun = writing.fill, []


def interrupting(handle, job, *rest):
    begun.append(job)
    if len(begun) == 4:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    return fill(handle, job, *rest)


writing.fill = interrupting
main()
"""


def test_interrupt_says_how_to_go_on(tmp_path):
    source = _sparse_model(tmp_path / "in.safetensors", 512)
    target = tmp_path / "out.safetensors"
    target.write_bytes(OLD)
    python, _, _, *words = _command(source, target)
    done = subprocess.run([python, "-c", INTERRUPTED, *words], capture_output=True, text=True)
    assert done.returncode == 130
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert target.read_bytes() == OLD
    assert Path(f"{target}.partial.journal").read_text().count("\n") > 1
    subprocess.run(_command(source, target, "--resume"), check=True, capture_output=True)
    assert cc.open(target)["layers.3.weight"][0].numpy()[0] == 4


def test_a_full_disk_keeps_the_old_output(tmp_path):
    source = _sparse_model(tmp_path / "in.safetensors", 16)
    target = tmp_path / "out.safetensors"
    target.write_bytes(OLD)

    limited = ["sh", "-c", 'ulimit -f 2048; exec "$@"', "sh"]  # blocks of 512 bytes
    done = subprocess.run([*limited, *_command(source, target)], capture_output=True, text=True)
    assert (done.returncode, target.read_bytes()) == (6, OLD)
    assert "E-OUT-FULL" in done.stderr


def test_output_may_be_the_input(tmp_path):
    source = _sparse_model(tmp_path / "in.safetensors", 1)
    before = cc.hash(source)
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-EXISTS"):
        cc.convert(source, source)
    cc.convert(source, source, force=True, verify="full")
    assert cc.hash(source) == before


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path):
    source = _sparse_model(tmp_path / "in.safetensors", 1)
    with pytest.raises(cc.FileAccessError, match="E-OUT-WRITE"):
        cc.convert(source, tmp_path / "in.safetensors" / "out.safetensors")


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("memory", ["1MiB", "2GiB"])
def test_threads_and_memory_do_not_change_the_bytes(tmp_path, threads, memory):
    source = _sparse_model(tmp_path / "in.safetensors", 16, tensors=3)
    cc.convert(source, tmp_path / "reference.safetensors", dtype="bf16")
    cc.convert(source, tmp_path / "out.safetensors", dtype="bf16", threads=threads, max_memory=memory)
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "reference.safetensors").read_bytes()


def test_memory_stays_bounded(tmp_path):
    source = _sparse_model(tmp_path / "in.safetensors", 1024, tensors=1)
    script = (
        "import candle_convert as cc, sys\n"
        "from candle_convert.convert.console.memory import peak_rss\n"
        "base = peak_rss()\n"
        "cc.convert(sys.argv[1], sys.argv[2], dtype='bf16', verify='full')\n"
        "print(peak_rss() - base)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(source), str(tmp_path / "o.safetensors")],
        capture_output=True,
        text=True,
        check=True,
    )
    os.unlink(tmp_path / "o.safetensors")
    assert int(done.stdout) < 250e6


def test_one_file_in_a_folder_of_the_output(tmp_path):
    """A variant of one network, as Transformers.js finds it."""
    network = Path(cc.__file__).parent / "examples" / "digits.onnx"
    cc.convert(network, tmp_path / "out", to="onnx", dtypes=("f16",))
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [
        tmp_path / "out" / "onnx" / "model_fp16.onnx"
    ]


def _shards_of(folder):
    return sorted(path.name for path in folder.iterdir() if "-of-" in path.name)


@pytest.mark.parametrize(("to", "suffix"), [("safetensors", ".safetensors"), ("gguf", ".gguf")])
def test_an_earlier_output_of_more_shards_is_replaced_as_a_whole(tmp_path, to, suffix):
    source, out = _sparse_model(tmp_path / "in.safetensors", 1), tmp_path / "out"
    wanted = {"to": to, "attachments": True}
    cc.convert(source, out, shard_tensors=2, **wanted)
    before = _shards_of(out)
    assert len(before) == 4
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-EXISTS"):
        cc.convert(source, out, shard_tensors=4, force=False, **wanted)
    assert _shards_of(out) == before
    cc.convert(source, out, shard_tensors=4, force=True, **wanted)
    assert _shards_of(out) == [f"model-0000{number}-of-00002{suffix}" for number in (1, 2)]
    assert cc.hash(out) == cc.hash(source)
    if to == "safetensors":
        cc.convert(source, out, force=True, **wanted)
        assert [path.name for path in out.iterdir()] == ["model.safetensors"]
        cc.convert(source, out, shard_tensors=4, force=True, **wanted)
        assert len(_shards_of(out)) == 2
        assert not (out / "model.safetensors").exists()
        assert cc.hash(out) == cc.hash(source)


def test_shards_that_are_read_are_not_removed(tmp_path):
    source, out = _sparse_model(tmp_path / "in.safetensors", 1), tmp_path / "out"
    cc.convert(source, out, to="safetensors", shard_tensors=2)
    before = sorted(out.iterdir())
    with pytest.raises(cc.UnsafeFileError, match="E-OUT-INPUT"):
        cc.convert(out, out, to="safetensors", shard_tensors=4, force=True)
    assert sorted(out.iterdir()) == before


@pytest.mark.parametrize("force", [False, True])
def test_two_writers_with_other_sizes_of_shards_leave_one_output(tmp_path, force):
    source, out = _sparse_model(tmp_path / "in.safetensors", 64), tmp_path / "out"
    counts = (1, 2, 4, 8)
    commands = [
        [sys.executable, "-m", "candle_convert.convert", "convert", str(source), str(out), "--to", "safetensors",
         "--shard-tensors", str(count), *(["--force"] if force else [])]
        for count in counts
    ]  # fmt: skip
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands
    ]
    for run in runs:
        _, said = run.communicate()
        assert run.returncode in (0, 5)
        assert run.returncode == 0 or "E-OUT-" in said
        assert "Traceback" not in said
    assert any(run.returncode == 0 for run in runs)
    sets = {name.partition("-of-")[2] for name in _shards_of(out)}
    assert (len(sets), (out / "model.safetensors").exists()) in ((1, False), (0, True))
    assert cc.hash(out) == cc.hash(source)
