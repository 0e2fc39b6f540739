"""Failures of processes: workers and clients that are killed, memory that ends, disks that are full."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.cluster.workers import cluster as clusters
from candle_convert.tests.builders.cluster_work import Failing, Held, Slow


@pytest.fixture(scope="module")
def cluster():
    with cc.cluster("local:2") as workers:
        yield workers


@pytest.fixture(scope="module")
def calm():
    """Workers that no test kills: whether a killed one of the others is there again depends on the machine."""
    with cc.cluster("local:2") as workers:
        workers.client.wait_for_workers(2, timeout=120)
        yield workers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """48 tensors of 1 MiB."""
    random = np.random.default_rng(0)
    arrays = {f"blk.{number}.ffn_up.weight": random.standard_normal((256, 1024), np.float32) for number in range(48)}
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    cc.save_file(arrays, path)
    return path


@pytest.mark.parametrize("how", ["memory", "killed"])
def test_tried_again(cluster, tmp_path, how):
    """A piece that ran out of memory, or whose worker was killed by SIGKILL, is done once more."""
    assert list(cluster.in_order(Failing(how, str(tmp_path)), range(8))) == [number * 2 for number in range(8)]
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize(
    ("how", "error", "why"),
    [
        ("memory", cc.LimitError, r"E-CLUSTER-MEMORY.*piece 3 ran out of memory on 3 tries"),
        ("killed", cc.LimitError, r"E-CLUSTER-WORKER.*piece \d ended 4 workers"),
        ("disk", OSError, "No space left"),
    ],
)
def test_bounded(cluster, tmp_path, how, error, why):
    """Tries are bounded, and the error is one line."""
    with pytest.raises(error, match=why) as raised:
        list(cluster.results(Failing(how, str(tmp_path), 100), range(8)))
    assert "\n" not in str(raised.value)


def test_slow_worker(calm):
    """A worker that takes 100 times as long gets few of the pieces; results are in order."""
    slow = next(iter(calm.client.run(os.getpid).values()))
    found = list(calm.in_order(Slow(slow), range(200)))
    assert [number for number, _ in found] == list(range(200))
    assert sum(process == slow for _, process in found) < 20


def test_results_that_wait(calm, tmp_path):
    """A piece that takes long: only so many later ones are done meanwhile."""
    sent = []

    def pieces():
        for number in range(400):
            sent.append(number)
            yield number

    path = tmp_path / "go"
    most = calm.workers.threads * clusters.AHEAD * clusters.EARLY
    threading.Timer(3, path.touch).start()
    found = calm.in_order(Held(str(path)), pieces())
    assert next(found) == 0
    assert len(sent) <= most + 1
    assert list(found) == list(range(1, 400))


def test_full_disk(cluster, model, tmp_path):
    """A worker without room for its part of the output: one line, and what is written stays for --resume."""
    out = tmp_path / "out.safetensors"
    cluster.client.run(signal.signal, signal.SIGXFSZ, signal.SIG_IGN)
    cluster.client.run(resource.setrlimit, resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
    try:
        with pytest.raises(cc.Error, match=r"out\.safetensors\.partial"):
            cc.convert(model, out, cluster=cluster)
    finally:
        cluster.client.run(resource.setrlimit, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert not out.exists()
    assert (tmp_path / "out.safetensors.partial").exists()
    cc.convert(model, out, resume=True, cluster=cluster)
    cc.convert(model, tmp_path / "alone.safetensors")
    assert out.read_bytes() == (tmp_path / "alone.safetensors").read_bytes()


def test_killed_worker_writes_the_same_bytes(cluster, model, tmp_path):
    """A worker is killed between its pieces of a conversion, another one takes its place."""
    killed = []

    class Kills:
        """A progress display that kills a worker once."""

        def phase(self, name): ...
        def start(self, total, skipped=0, unit="bytes"): ...
        def finish(self): ...

        def advance(self, count):
            if not killed:
                killed.append(next(iter(cluster.client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

    out = tmp_path / "out.gguf"
    cc.quantize(model, out, cc.Recipe("Q4_K", pure=True), progress=Kills(), cluster=cluster)
    cc.quantize(model, tmp_path / "alone.gguf", cc.Recipe("Q4_K", pure=True))
    assert killed
    assert out.read_bytes() == (tmp_path / "alone.gguf").read_bytes()


def test_killed_client(cluster, model, tmp_path):
    """The client is killed while workers write; the old output stays, and --resume ends in the same bytes."""
    out = tmp_path / "out.npz"
    out.write_bytes(b"the old output")
    words = ["convert", str(model), str(out), "--dtype", "f16", "--force", "--cluster"]
    command = [sys.executable, "-m", "candle_convert.convert", *words, cluster.client.scheduler.address]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    journal = tmp_path / "out.npz.partial.journal"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if journal.exists() and journal.read_text().count("\n") > 2:
            break
        time.sleep(0.002)
    process.kill()
    process.wait()
    if process.returncode == -signal.SIGKILL:
        assert out.read_bytes() == b"the old output"
    assert subprocess.run([*command, "--resume"], capture_output=True).returncode == 0
    cc.convert(model, tmp_path / "alone.npz", dtype="f16")
    assert out.read_bytes() == (tmp_path / "alone.npz").read_bytes()
