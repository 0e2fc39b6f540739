"""Prompt processing and token generation against llama-bench: tokens per second and peak memory on the same GGUF file.

    CANDLE_LLAMA_BENCH=build/bin/llama-bench python benchmarks/generate.py MODEL.gguf ... [--threads 2] [--prompt 512]
        [--generate 64] [--runs 7] [--activations f32,q8] [--type Q4_0,Q8_0] [--depth 0] [--busy 0]

Every run is a process of its own; runs are interleaved and medians printed. The first pass of a process is not timed.
Prompts and generation start with a KV cache of `--depth` tokens. The floor of generation is the memory bandwidth over
the bytes of weights and cache that a token reads; the bandwidth is measured with the same threads before each run of
ours, because it varies on a shared machine, and the median is used. `of floor` is the share reached. `first s` is the
time from process start to the first token of ours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WARM_UP = 8
"""Tokens before timing starts."""
FILL = 512
"""Tokens per step when the cache is filled to `--depth`."""
HEADS = (
    "file", "activations", "prompt: ours t/s", "llama.cpp t/s", "speedup", "generation: ours t/s", "llama.cpp t/s",
    "speedup", "GB/s", "floor t/s", "ours of floor", "llama.cpp of floor", "ours CPU ms/token",
    "llama.cpp CPU ms/token", "ours peak MB", "llama.cpp peak MB", "file MB", "first s",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="GGUF file")
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt; 0 skips prompts")
    parser.add_argument("--generate", type=int, default=64, help="generated tokens")
    parser.add_argument("--depth", type=int, default=0, help="tokens in the KV cache at the start")
    parser.add_argument("--busy", type=int, default=0, help="other processes that keep a core busy")
    parser.add_argument("--runs", type=int, default=7, help="runs of each engine")
    parser.add_argument("--activations", default="f32,q8", help="comma-separated activation types of ours")
    parser.add_argument("--type", help="comma-separated file types: quantize the model to each first")
    parser.add_argument("--folder", default="/dev/shm", help="folder of quantized files")
    parser.add_argument("--measure", choices=["f32", "q8"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        return print(json.dumps(measure(arguments)))
    tool = os.environ.get("CANDLE_LLAMA_BENCH")
    if tool is None:
        parser.error("set CANDLE_LLAMA_BENCH to the path of llama-bench")
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for model in arguments.models:
        for name in arguments.type.split(",") if arguments.type else [None]:
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                made = model if name is None else quantized(model, name, Path(folder))
                with occupied(arguments.busy):
                    compare(tool, made, arguments)
    return None


@contextlib.contextmanager
def occupied(count: int) -> Iterator[None]:
    """Keep `count` cores busy with processes."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def quantized(model: Path, name: str, folder: Path) -> Path:
    """Quantize the model to a file type."""
    made = folder / f"{model.stem}-{name}.gguf"
    command = [sys.executable, "-m", "candle_convert.convert", "quantize", str(model), str(made), name, "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return made


def compare(tool: str, model: Path, arguments: argparse.Namespace) -> None:
    """Print the rows of one file, one for each activation type."""
    peer_runs: list[dict[str, float]] = []
    our_runs: dict[str, list[dict[str, float]]] = {activations: [] for activations in arguments.activations.split(",")}
    readings: list[float] = []
    for _ in range(arguments.runs):
        peer_runs.append(llama(tool, model, arguments))
        for activations, runs in our_runs.items():
            # A process of its own: a child starts with the peak memory of its parent.
            with multiprocessing.get_context("spawn").Pool(1) as process:
                readings += process.apply(bandwidths, (arguments.threads,))
            runs.append(ours(model, activations, arguments))
    bandwidth = statistics.median(readings)
    cache = statistics.median(run.pop("cache") for runs in our_runs.values() for run in runs)
    floor = bandwidth / (read_bytes(model) + cache)
    peer = medians(peer_runs)
    for activations, runs in our_runs.items():
        row = medians(runs)
        cells = [model.name, activations]
        cells += [f"{row['prompt']:.0f}", f"{peer['prompt']:.0f}", f"{row['prompt'] / peer['prompt']:.2f}"]
        cells += [f"{row['generate']:.1f}", f"{peer['generate']:.1f}", f"{row['generate'] / peer['generate']:.2f}"]
        cells += [f"{bandwidth / 1e9:.1f}", f"{floor:.1f}"]
        cells += [f"{side['generate'] / floor:.2f}" for side in (row, peer)]
        cells += [f"{side['cpu'] * 1e3:.1f}" for side in (row, peer)]
        cells += [f"{side['peak'] / 1e6:.0f}" for side in (row, peer)]
        cells += [f"{model.stat().st_size / 1e6:.0f}", f"{row['first']:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Median of each measurement."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def llama(tool: str, model: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """One run of llama-bench."""
    sizes = ["-p", str(arguments.prompt), "-n", str(arguments.generate), "-r", "1"]
    sizes += ["-t", str(arguments.threads), "-d", str(arguments.depth), "-o", "json"]
    rows, used = run_json([tool, "-m", str(model), *sizes])
    found = {"prompt": math.nan} | {"prompt" if row["n_prompt"] else "generate": row["avg_ts"] for row in rows}
    if arguments.depth or arguments.busy:  # processor time would need the cache filled twice more, or idle cores
        return {**found, "cpu": math.nan, "peak": used.ru_maxrss * 1024.0}
    _, alone = run_json([tool, "-m", str(model), "-p", "0", "-n", str(4 * arguments.generate), *sizes[4:]])
    _, less = run_json([tool, "-m", str(model), "-p", "0", "-n", str(arguments.generate), *sizes[4:]])
    cpu = (alone.ru_utime - less.ru_utime) / (3 * arguments.generate)
    return {**found, "cpu": cpu, "peak": used.ru_maxrss * 1024.0}


def ours(model: Path, activations: str, arguments: argparse.Namespace) -> dict[str, float]:
    """One run of ours."""
    sizes = ["--prompt", str(arguments.prompt), "--generate", str(arguments.generate)]
    sizes += ["--threads", str(arguments.threads), "--depth", str(arguments.depth)]
    start = time.time()
    found, used = run_json([sys.executable, __file__, str(model), *sizes, "--measure", activations])
    return {**found, "first": found["first"] - start, "peak": used.ru_maxrss * 1024.0}


def run_json(command: list[str]) -> tuple[Any, resource.struct_rusage]:
    """JSON output of a command, and the resources it used."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    return json.loads(output), used


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Measurements in this process: `first` is the clock at the first token, `cache` the bytes of the KV cache."""
    import candle_convert.models
    import numpy as np

    model = candle_convert.models.load(arguments.models[0], threads=arguments.threads, activations=arguments.measure)
    # Not numpy.random, which loads OpenSSL and so adds to the peak memory.
    ids = np.arange(max(WARM_UP, arguments.prompt))[None] * 7919 % 990 + 10
    model.advance(ids[:, :WARM_UP], model.start(1)).argmax()
    first = time.time()
    prompt = math.nan
    if arguments.prompt:
        model.advance(ids, model.start(1))
        cache = filled(model, arguments.depth)
        start = time.perf_counter()
        model.advance(ids, cache)
        prompt = arguments.prompt / (time.perf_counter() - start)
    cache = filled(model, arguments.depth)
    token = ids[:, :1]
    for _ in range(WARM_UP):
        token = model.advance(token, cache).argmax(1)[:, None]
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(arguments.generate):
        token = model.advance(token, cache).argmax(1)[:, None]
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    cache_nbytes = sum(array.nbytes for array in cache.states.values()) * arguments.depth / cache.mask_buffer.shape[1]
    speeds = {"prompt": prompt, "generate": arguments.generate / seconds, "cpu": cpu / arguments.generate}
    return {**speeds, "first": first, "cache": cache_nbytes}


def filled(model: Any, depth: int) -> Any:
    """KV cache with `depth` tokens."""
    import numpy as np

    cache = model.start(1)
    for start in range(0, depth, FILL):
        model.advance(np.full((1, min(FILL, depth - start)), 10), cache)
    return cache


def read_bytes(model: Path) -> int:
    """Bytes of the weights that a generated token reads: all, without the embedding if the output head is untied."""
    import candle_convert as cc

    weights = cc.open(model).weights
    tied = "output.weight" not in weights
    return sum(tensor.nbytes for name, tensor in weights.items() if tied or name != "token_embd.weight")


def bandwidths(threads: int) -> list[float]:
    """Bytes per second that `threads` threads together read from memory, of seven readings."""
    import numpy as np

    arrays = [np.ones(1 << 26, np.float32) for _ in range(threads)]
    found = []
    for _ in range(7):
        workers = [threading.Thread(target=array.max) for array in arrays]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found.append(sum(array.nbytes for array in arrays) / (time.perf_counter() - start))
    return found


if __name__ == "__main__":
    main()
