"""What the operating system refuses ends in one line and exit 6 or 7: names, folders, files, disks, devices."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.console.atomic_replace import replacing
from candle_convert.convert.sounds.write_sound import write_sound
from candle_convert.runtime.base.system_error import system_error, write_error
from candle_convert.tests.builders.tiny_llama import written

PROGRAM = "from candle_convert.convert.__main__ import main; main()"
LONG = "a" * 300


def run(words, folder, setup=None, program=PROGRAM, **environment):
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        preexec_fn=setup,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("system")
    written(folder / "m.gguf")
    (folder / "file").touch()
    cc.convert(folder / "m.gguf", folder / "folder", to="safetensors")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", LONG),
        ("inspect", "file/m.gguf"),
        ("convert", "m.gguf", f"{LONG}.safetensors"),
        ("convert", "m.gguf", "file/m.safetensors"),
        ("convert", "m.gguf", "m.onnx/", "-t", "onnx", "--report", LONG),
        ("quantize", "m.gguf", f"{LONG}.gguf", "Q8_0"),
        ("inspect", "m.gguf", "--html", f"{LONG}.html"),
        ("inspect", "m.gguf", "--html", "file/m.html"),
        ("tokenizer", "export", "m.gguf", LONG),
        ("tokenizer", "export", "m.gguf", "file/folder"),
        ("split", "m.gguf", f"{LONG}.gguf", "--shard-tensors", "3"),
        ("print", "m.gguf", "token_embd.weight", "--save", f"{LONG}.npy"),
    ],
)
def test_names_that_cannot_be(words, folder):
    ended = run(words, folder)
    assert ended.returncode == 7, ended.stderr
    assert ended.stderr.count("\u2717") == 1
    assert ended.stderr.splitlines()[-1].startswith("\u2717 E-")


@pytest.mark.parametrize("count", [5, 6, 7, 8])
@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "m.gguf"),
        ("quantize", "m.gguf", "q.gguf", "Q8_0", "-f"),
        ("inspect", "folder"),
        ("generate", "folder", "-p", "a", "-n", "1"),
    ],
)
def test_few_open_files(words, count, folder):
    ended = run(words, folder, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)))
    assert ended.returncode in (0, 6), ended.stderr
    if ended.returncode:
        assert "E-FILES" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1 or "plan" in ended.stdout


def test_no_temporary_folder(folder):
    program = f"import tempfile; tempfile._candidate_tempdir_list = lambda: []; {PROGRAM}"
    ended = run(("inspect", "m.gguf"), folder, program=program)
    assert ended.returncode == 0
    for name in ("m.gguf.gz", "m.npz"):
        (folder / name).write_bytes(b"")
    import gzip

    (folder / "m.gguf.gz").write_bytes(gzip.compress((folder / "m.gguf").read_bytes()))
    ended = run(("inspect", "m.gguf.gz"), folder, program=program)
    assert ended.returncode in (3, 4, 6, 7), ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_bugs_are_told_without_a_temporary_folder(folder):
    program = (
        "import tempfile; tempfile._candidate_tempdir_list = lambda: []\n"
        "from candle_convert.convert.cli import main as cli\n"
        f"cli.check_start = lambda: 1 // 0\n{PROGRAM}"
    )
    ended = run(("inspect", "m.gguf"), folder, program=program)
    assert ended.returncode == 70
    assert "E-BUG" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr
    assert "During handling" not in ended.stderr


def _small_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize("name", ["m.wav", "m.flac", "m.ogg", "m.mp3"])
def test_sounds_on_a_full_disk(name, tmp_path):
    """A limit of a file's size stands for the disk: the system refuses the same call."""
    program = (
        "import sys, numpy as np, candle_convert as cc\n"
        "from candle_convert.convert.sounds.write_sound import write_sound\n"
        "noise = np.random.default_rng(0).uniform(-1, 1, 200_000).astype(np.float32)\n"
        "try: write_sound(sys.argv[1], noise, 16_000)\n"
        "except cc.Error as error: print(error.code, error.exit_code)\n"
    )
    ended = run((name,), tmp_path, _small_files, program)
    assert (ended.stdout, ended.stderr) == ("E-OUT-FULL 6\n", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [("convert", "m.gguf", "full.safetensors"), ("inspect", "m.gguf", "--html", "full.html"),
     ("tokenizer", "export", "m.gguf", "full"), ("quantize", "m.gguf", "full.gguf", "Q8_0")],
)  # fmt: skip
def test_outputs_on_a_full_disk(words, folder):
    ended = run(words, folder, _small_files)
    assert ended.returncode == 6, ended.stderr
    assert "E-OUT-FULL" in ended.stderr
    assert "E-BUG" not in ended.stderr


def test_pipes_are_written_into_and_stay(folder, tmp_path):
    """As devices are: a file that replaced one would take it from every program of the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with replacing(pipe, force=True) as file:
        file.write(b"content")
    reader.join()
    assert got == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    for name in ("pipe.gguf", "pipe.onnx"):
        os.mkfifo(tmp_path / name)
        ended = run(("convert", folder / "m.gguf", tmp_path / name, "-f"), folder)
        assert stat.S_ISFIFO((tmp_path / name).stat().st_mode)
        assert ended.returncode == 7, ended.stderr
        assert "E-OUT-KIND" in ended.stderr


def test_a_name_of_255_bytes_is_written(tmp_path):
    path = tmp_path / ("a" * 251 + ".wav")
    write_sound(path, np.zeros(100, np.float32), 16_000)
    assert path.stat().st_size > 200


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, cc.LimitError),
        (errno.EMFILE, cc.LimitError),
        (errno.EACCES, cc.FileAccessError),
        (errno.ENAMETOOLONG, cc.FileAccessError),
    ],
)
def test_system_errors_are_known(number, kind):
    error = OSError(number, os.strerror(number), "name")
    assert isinstance(system_error(error), kind)
    assert isinstance(write_error("name", error), kind)
    assert system_error(ValueError("x")) is None
    assert system_error(OSError("a library's own")) is None


def test_a_working_folder_that_has_been_deleted(folder, tmp_path):
    """It is named where a path is relative to it; other commands work."""

    def deleted():
        os.rmdir(tmp_path / "working")

    words = {("doctor",): 0, ("inspect", str(folder / "m.gguf")): 0, ("convert", str(folder / "m.gguf"), "a.gguf"): 7}
    for command, code in words.items():
        (tmp_path / "working").mkdir()
        done = run(command, tmp_path / "working", setup=deleted)
        assert done.returncode == code, done.stderr
        assert (code == 0) != ("the working folder has been deleted" in done.stderr)
        assert "Traceback" not in done.stderr
