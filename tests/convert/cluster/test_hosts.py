"""Hosts in network namespaces: a scheduler with its client, and workers at other addresses."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cluster.workers.version import version
from candle_convert.tests.builders.network_hosts import hosts
from candle_convert.tests.builders.package_copy import PACKAGE, package_with


@pytest.fixture(scope="module")
def three():
    with hosts(3) as made:
        made.address = made.scheduler()
        made.worker(1, made.address)
        made.second = made.worker(2, made.address)
        yield made


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    random = np.random.default_rng(0)
    arrays = {f"blk.{number}.ffn_up.weight": random.standard_normal((512, 1024), np.float32) for number in range(40)}
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    cc.save_file(arrays, path)
    return path


def test_conversion(three, model, tmp_path):
    """Workers of two hosts write the bytes of one process; one that loses its network does not matter."""
    cc.convert(model, tmp_path / "alone.gguf", dtype="f16")
    for number in range(2):
        out = tmp_path / f"{number}.gguf"
        done = three.convert(0, "convert", str(model), str(out), "--dtype", "f16", "--cluster", three.address)
        assert done.returncode == 0, done.stderr
        assert out.read_bytes() == (tmp_path / "alone.gguf").read_bytes()
        assert three.address in done.stderr
        if not number:
            three.cut(2)
            three.second.kill()


def test_workers_without_the_files(three, model, tmp_path):
    """Work goes to the workers that can read the model; while there is none, the command says that it is missing."""
    cc.convert(model, tmp_path / "alone.gguf", dtype="f16")
    three.worker(1, three.address)
    other = three.worker(0, three.address, hidden=model.parent)
    words = ("convert", str(model), str(tmp_path / "out.gguf"), "--dtype", "f16", "--force", "--cluster", three.address)
    try:
        for _ in range(20):
            done = three.convert(0, *words)
            if "cluster  1 worker," in done.stderr and "E-IO-MISSING" in done.stderr:
                continue
            assert done.returncode == 0, done.stderr
            assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "alone.gguf").read_bytes()
            if "1 worker left out" in done.stderr:
                break
        assert f"1 worker left out: {model} cannot be read by the worker at tcp://" in " ".join(done.stderr.split())
    finally:
        other.terminate()
        other.wait(20)


def test_other_version(three, model, tmp_path):
    """A worker process with another source is refused with both versions, and there is no output."""
    text = (PACKAGE / "runtime" / "base" / "units.py").read_text() + "\n# another version\n"
    (tmp_path / "other").mkdir()
    package_with(tmp_path / "other", "runtime/base/units.py", text)
    other = three.worker(0, three.address, below=tmp_path / "other")
    try:
        out = tmp_path / "out.gguf"
        with_other = ""
        for _ in range(20):
            words = ("convert", str(model), str(out), "--dtype", "f16", "--force", "--cluster", three.address)
            done = three.convert(0, *words)
            with_other = done.stderr
            if done.returncode:
                break
        assert "E-CLUSTER-VERSION" in with_other
        assert version() in with_other
        assert with_other.count("candle-convert 0.") == 1
    finally:
        other.terminate()
