"""Training steps a second and peak memory, against torch eager and compiled, JAX and tinygrad; forward, backward and
update.

    python benchmarks/training.py [--models mlp,gpt,lora] [--peers cc,torch,compile,jax,tinygrad] [--rounds 7]

Every peer runs in a process of its own with the same weights, batches and optimizer; processes take turns, and the
median of the rounds is reported with the processor time of a step, which other programs disturb less, and the loss
after the last step. `lora` trains adapters on a Qwen2 of 0.5B parameters: ours keeps its weights in Q8_0, torch with
PEFT has the same values in f32, and in bf16 as the peer `bf16`. `--dispatch` times ``a @ b + c`` of 8 x 8 in place of
training. A peer that is not installed is left out, as are torch.compile without a C++ compiler and tinygrad without
clang; a peer that fails at a model, or takes longer than `--limit` for a turn, is named, and the others go on.
"""

import argparse
import importlib
import importlib.util
import json
import os
import resource
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = ("mlp", "cnn", "lstm", "gru", "gpt", "bert", "lora")
MODULES = {
    "cc": "ours", "eager": "ours", "torch": "of_torch", "compile": "of_torch", "jax": "of_jax",
    "tinygrad": "of_tinygrad", "bf16": "lora",
}  # fmt: skip
"""Modules of `training_peers` by peer: `cc` steps under jit, `eager` without it."""
LORA_PEERS = ("cc", "torch", "bf16")
NEEDS = {"jax": ("jax", ()), "torch": ("torch", ()), "bf16": ("peft", ()), "compile": ("torch", ("g++", "clang++")),
         "tinygrad": ("tinygrad", ("clang",))}  # fmt: skip
"""Package of a peer, and programs of which it needs one."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CPU_COUNT")


def worker(peer, model, folder):
    """Run steps as lines of standard input ask for, and answer each with seconds, processor time, loss and memory."""
    threads = os.environ.get(THREADS[0])
    if threads is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if model in ("dispatch", "lora"):
        made = importlib.import_module(f"training_peers.{model}").PEERS[peer]
        run = made(folder) if model == "lora" else made()
    else:
        peers = importlib.import_module(f"training_peers.{MODULES[peer]}").PEERS
        run = peers[peer](importlib.import_module("training_peers.models").MODELS[model]())
    for line in sys.stdin:
        count = int(line)
        start, processor = time.perf_counter(), time.process_time()
        loss = run(count)
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(json.dumps([seconds, processor, loss, peak / 1024]), flush=True)


class Peer:
    """A process that makes training steps."""

    def __init__(self, name, model, folder, options):
        self.name, self._limit = name, options.limit
        environment = {**os.environ, **dict.fromkeys(THREADS, str(options.threads))}
        environment["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={options.threads}"
        command = [sys.executable, __file__, "--worker", name, "--models", model, "--folder", folder]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.seconds, self.processor = [], []
        start = time.perf_counter()
        self.run(1)
        self.first = time.perf_counter() - start

    def run(self, count):
        """Seconds and processor seconds of a step; RuntimeError where the process has ended or takes too long."""
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], self._limit)[0]:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"{self.name} took longer than {self._limit:g} s")
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        seconds, processor, self.loss, self.peak = json.loads(answer)
        return seconds / count, processor / count

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def started(names, model, folder, options):
    """The peers that make their first steps; those that fail are printed."""
    for name in names:
        try:
            peer = Peer(name, model, folder, options)
            peer.run(3)
        except RuntimeError as failure:
            print(f"{model:8} {name:8} failed: {failure}", flush=True)
        else:
            yield peer


def measured(model, names, folder, options):
    """Print a line for each peer."""
    peers = list(started(names, model, folder, options))
    counts = [max(1, int(options.seconds / peer.run(1 if model == "lora" else 3)[0])) for peer in peers]
    for _ in range(options.rounds):
        for peer, count in zip(peers, counts, strict=True):
            seconds, processor = peer.run(count)
            peer.seconds.append(seconds)
            peer.processor.append(processor)
    for peer in peers:
        median = statistics.median(peer.seconds)
        rate = f"{1e6 * median:9.1f} us" if model == "dispatch" else f"{1 / median:9.2f} steps/s"
        print(
            f"{model:8} {peer.name:8} {rate}  processor {1e3 * statistics.median(peer.processor):9.3f} ms  "
            f"first {peer.first:6.1f} s  peak {peer.peak:6.0f} MiB  value {peer.loss:.5f}",
            flush=True,
        )
        peer.close()


def available(name):
    """Whether a peer is installed with what it needs."""
    package, programs = NEEDS.get(name, (None, ()))
    if package and importlib.util.find_spec(package) is None:
        return False
    return not programs or any(map(shutil.which, programs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--peers", default=",".join(MODULES), help=f"of {', '.join(MODULES)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=180, help="seconds that a turn of a peer may take")
    parser.add_argument("--dispatch", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.models, options.folder)
        return
    peers = [name for name in options.peers.split(",") if available(name)]
    for model in ["dispatch"] if options.dispatch else options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            if model == "lora":
                files = [sys.executable, __file__, "--worker", "files", "--models", model, "--folder", folder]
                subprocess.run(files, stdin=subprocess.DEVNULL, check=True)
            known = {"dispatch": ("eager", "torch", "jax"), "lora": LORA_PEERS}.get(model, [*MODULES][:-1])
            measured(model, [name for name in peers if name in known], folder, options)


if __name__ == "__main__":
    main()
