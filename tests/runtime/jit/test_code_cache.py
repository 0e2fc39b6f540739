"""Machine code on the disk: read only where it is whole and this user's alone, and run without Numba."""

import gc
import importlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import candle_convert
import numpy as np
import pytest
from candle_convert.runtime.jit import code_cache
from candle_convert.runtime.jit.code_cache import CachedKernel
from candle_convert.runtime.jit.llvm_kernel import EmittedKernel
from candle_convert.runtime.jit.range_kernel import RangeKernel
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.runtime.tensor.checksum import KERNEL, checksum

LINUX = pytest.mark.skipif(not code_cache.supported(), reason="kernels are kept for Linux on x86-64")
ENCODE = """
import sys
import numpy as np
from candle_convert.runtime.tensor.block_codec import codec_of
from candle_convert.runtime.tensor.block_codec import block_type, encoded
print(encoded(codec_of(block_type("q4_0")), np.linspace(-1, 1, 64)[None]).tobytes().hex(), "numba" in sys.modules)
"""


def encode(cache):
    """The blocks that a new process makes, and whether it loaded Numba."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", ENCODE], env=environment, capture_output=True, text=True, check=True)
    blocks, numba = done.stdout.split()
    return blocks, numba == "True"


@LINUX
def test_a_second_process_runs_the_code_of_the_first_without_numba(tmp_path):
    blocks, numba = encode(tmp_path)
    assert numba
    assert encode(tmp_path) == (blocks, False)
    (file,) = (tmp_path / "candle-convert" / "kernels").glob("*.ops.quants.*")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert encode(tmp_path) == (blocks, True)
    assert encode(tmp_path) == (blocks, False)
    file.parent.chmod(0o777)
    assert encode(tmp_path) == (blocks, True)


@LINUX
@pytest.mark.parametrize("kind", ["pipe", "full folder"])
def test_other_things_by_the_name_of_a_kernel(tmp_path, kind):
    """They are no code, are not waited for, and do not keep a command from computing."""
    blocks, _ = encode(tmp_path)
    (file,) = (tmp_path / "candle-convert" / "kernels").glob("*.ops.quants.*")
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
        (file / "x").touch()
    assert encode(tmp_path)[0] == blocks


@LINUX
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_other_things_by_the_name_of_a_generated_module(tmp_path, kind):
    path = tmp_path / "module.py"
    if kind == "pipe":
        os.mkfifo(path)
        code_cache.write_text(path, "x = 1\n")
        assert path.read_text() == "x = 1\n"
    else:
        path.mkdir()
        with pytest.raises(OSError):
            code_cache.write_text(path, "x = 1\n")


@pytest.mark.parametrize("folder", ["", "relative/folder", "."])
def test_a_relative_cache_folder_does_not_count(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert code_cache.cache() == tmp_path / ".cache" / "candle-convert"


@LINUX
@pytest.mark.parametrize("change", ["mode", "link", "short", "digest", "none"])
def test_files_that_are_not_used(tmp_path, change):
    path = tmp_path / "kernel"
    code_cache.write_code(path, (0).to_bytes(8, "little") + b"\xc3" * 64)
    assert code_cache.read_code(path) == (0).to_bytes(8, "little") + b"\xc3" * 64
    if change == "mode":
        path.chmod(0o620)
    elif change == "link":
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    elif change == "short":
        os.truncate(path, 60)
    elif change == "digest":
        path.write_bytes(b"\0" + path.read_bytes()[1:])
    else:
        path.unlink()
    assert code_cache.read_code(path) is None


@LINUX
def test_every_encoder_and_decoder_is_kept():
    found = [kernel for codec in codecs().values() if codec.encoder is not None for kernel in codec.encoder.kernels]
    found += [codec.decoder.kernel for codec in codecs().values() if codec.decoder is not None]
    for kernel in found:
        kernel.load()
        assert code_cache.read_code(kernel._file) is not None, kernel.name


AT_THE_END = """
import ctypes
from candle_convert.runtime.jit import code_cache as machine

address = machine.map_code((0).to_bytes(8, "little") + b"\\xc3" * 64)
vars(machine).clear()
ctypes.CFUNCTYPE(None)(address)()
"""


@LINUX
def test_code_outlives_its_module():
    """The interpreter's end takes modules apart while threads without the GIL still run."""
    subprocess.run([sys.executable, "-c", AT_THE_END], check=True)


@pytest.mark.usefixtures("unfrozen")
def test_modules_of_stored_kernels_define_them():
    """These modules are named by strings, which nothing else looks at when a module moves."""
    root = Path(candle_convert.__file__).parent
    texts = {path: path.read_text() for folder in ("ops", "runtime") for path in (root / folder).rglob("*.py")}
    for path, text in texts.items():
        if re.search(r"^from .* import .*\bStored\b", text, re.MULTILINE):
            importlib.import_module(".".join((candle_convert.__name__, *path.relative_to(root).with_suffix("").parts)))
    codecs()
    stored = {(item.module, item.name) for item in gc.get_objects() if type(item) is CachedKernel}
    assert len(stored) > 30
    for module, name in stored:
        assert type(getattr(importlib.import_module(module), name)) in (RangeKernel, EmittedKernel)


def test_without_a_cache_kernels_are_compiled(monkeypatch):
    monkeypatch.setattr(code_cache, "folder", lambda: None)
    kernel = CachedKernel(KERNEL.module, KERNEL.name)
    data = np.arange(1000, dtype=np.uint8)
    assert not kernel.is_cached
    result = np.zeros(1, np.int64)
    kernel(data.ctypes.data, 1000, result.ctypes.data)
    assert result[0] == checksum(data.data)


@pytest.mark.parametrize("count", [1, 3, 4, 255, 256, 257, 1024, 1029])
def test_checksums_tell_changes_apart(count):
    data = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    seen = {checksum(data.data)}
    for at in range(count):
        for bit in (1, 128):
            data[at] ^= bit
            seen.add(checksum(data.data))
            data[at] ^= bit
    assert len(seen) == 2 * count + 1
    assert checksum(b"") == checksum(b"") != checksum(b"\0") != checksum(b"\0\0")


def test_threads_write_one_file_at_once(tmp_path):
    together, failures = threading.Barrier(8), []

    def write():
        for index in range(50):
            together.wait()
            try:
                code_cache.write_text(tmp_path / "kernel.py", "text" * (index + 1))
            except OSError as error:
                failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.py"]


def test_without_a_cache_nothing_is_left(tmp_path):
    program = "import candle_convert as cc; print(cc.jit(lambda x: (x * 2).exp())(cc.ones(200, 200)).sum().item())"
    (tmp_path / "file").touch()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(40000 * np.exp(2), rel=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
