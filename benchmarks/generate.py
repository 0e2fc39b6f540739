"""Text generation against llama-bench: tokens a second and peak memory on the same GGUF file, with the same threads, in turn.

    CANDLE_LLAMA_BENCH=build/bin/llama-bench python benchmarks/generate.py MODEL.gguf ... [--threads 2] [--prompt 512] [--generate 64] [--runs 7]
        [--activations f32,q8] [--type Q4_0,Q8_0] [--depth 0] [--busy 0]

Every run is a process of its own; ours and theirs take turns, medians are printed, with the seconds of processor time of a token beside them.
A first pass of every process is not timed. Generation and prompts begin with a cache of `--depth` tokens; `--prompt 0` leaves prompts out.
The floor of a generated token is the bytes of the weights that it reads, and of the cache, over the bandwidth of reading memory with the same
threads, which is measured before each run of ours, since neighbours on the same machine take a changing share of it: the median of all readings.
`of floor` is the share of it that was reached. `--type` quantizes each file to these types first, in memory-backed storage. `--busy` keeps so
many other processes computing all the while. `first` is a new process of ours from its start to the first token.
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

WARM = 8
FILL = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--activations", default="f32,q8")
    parser.add_argument("--type", help="quantize to these types first")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--measure", choices=["f32", "q8"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        return print(json.dumps(measured(arguments)))
    tool = os.environ.get("CANDLE_LLAMA_BENCH")
    if tool is None:
        parser.error("CANDLE_LLAMA_BENCH does not name llama-bench")
    print("| file | engine | prompt t/s | ratio | generate t/s | ratio | GB/s | floor t/s | of floor | CPU ms/token | peak MB | file MB | first s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for model in arguments.models:
        for name in arguments.type.split(",") if arguments.type else [None]:
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                made = model if name is None else quantized(model, name, Path(folder))
                with occupied(arguments.busy):
                    compare(tool, made, arguments)
    return None


@contextlib.contextmanager
def occupied(count: int) -> Iterator[None]:
    """So many processes that compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def quantized(model: Path, name: str, folder: Path) -> Path:
    """A file of another type."""
    made = folder / f"{model.stem}-{name}.gguf"
    words = ["quantize", str(model), str(made), name, "-q"]
    subprocess.run([sys.executable, "-m", "candle_convert.convert", *words], check=True, stdout=subprocess.DEVNULL)
    return made


def compare(tool: str, model: Path, arguments: argparse.Namespace) -> None:
    """The rows of one file."""
    engines = ["llama.cpp", *arguments.activations.split(",")]
    found: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
    readings: list[float] = []
    for _ in range(arguments.runs):
        for engine in engines:
            if engine != "llama.cpp":
                with multiprocessing.get_context("spawn").Pool(1) as process:  # a process begins with the peak memory of the one that starts it
                    readings += process.apply(bandwidths, (arguments.threads,))
            found[engine].append(llama(tool, model, arguments) if engine == "llama.cpp" else ours(model, engine, arguments))
    speed = statistics.median(readings)
    floor = speed / (read_bytes(model) + statistics.median(run.pop("cache") for engine in engines[1:] for run in found[engine]))
    peer = {key: statistics.median(run[key] for run in found["llama.cpp"]) for key in found["llama.cpp"][0]}
    for engine, runs in found.items():
        row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        name = engine if engine == "llama.cpp" else f"ours, {engine}"
        print(
            f"| {model.name} | {name} | {row['prompt']:.0f} | {row['prompt'] / peer['prompt']:.2f} | {row['generate']:.1f} | "
            f"{row['generate'] / peer['generate']:.2f} | {speed / 1e9:.1f} | {floor:.1f} | {row['generate'] / floor:.2f} | {row['cpu'] * 1e3:.1f} | "
            f"{row['peak'] / 1e6:.0f} | {model.stat().st_size / 1e6:.0f} | {row.get('first', float('nan')):.2f} |",
            flush=True,
        )


def llama(tool: str, model: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """One run of llama-bench."""
    sizes = ["-p", str(arguments.prompt), "-n", str(arguments.generate), "-r", "1"]
    sizes += ["-t", str(arguments.threads), "-d", str(arguments.depth), "-o", "json"]
    rows, used = spent([tool, "-m", str(model), *sizes])
    found = {"prompt": math.nan} | {"prompt" if row["n_prompt"] else "generate": row["avg_ts"] for row in rows}
    if arguments.depth or arguments.busy:  # what follows would fill the cache twice more, or wait for cores that others have
        return {**found, "cpu": math.nan, "peak": used.ru_maxrss * 1024.0}
    _, alone = spent([tool, "-m", str(model), "-p", "0", "-n", str(4 * arguments.generate), *sizes[4:]])
    _, less = spent([tool, "-m", str(model), "-p", "0", "-n", str(arguments.generate), *sizes[4:]])
    return {**found, "cpu": (alone.ru_utime - less.ru_utime) / (3 * arguments.generate), "peak": used.ru_maxrss * 1024.0}


def ours(model: Path, activations: str, arguments: argparse.Namespace) -> dict[str, float]:
    """One run of ours."""
    sizes = ["--prompt", str(arguments.prompt), "--generate", str(arguments.generate), "--threads", str(arguments.threads)]
    sizes += ["--depth", str(arguments.depth)]
    began = time.time()
    found, used = spent([sys.executable, __file__, str(model), *sizes, "--measure", activations])
    return {**found, "first": found["first"] - began, "peak": used.ru_maxrss * 1024.0}


def spent(command: list[str]) -> tuple[Any, resource.struct_rusage]:
    """What a command prints, as JSON, and what it used."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return json.loads(said), used


def measured(arguments: argparse.Namespace) -> dict[str, float]:
    """Speeds of one process; `first` is the clock when the first token was there, `cache` the bytes of the tokens in front of the first one."""
    import candle_convert.models
    import numpy as np

    model = candle_convert.models.load(arguments.models[0], threads=arguments.threads, activations=arguments.measure)
    ids = np.arange(max(WARM, arguments.prompt))[None] * 7919 % 990 + 10  # numpy.random would load OpenSSL, of whose memory the model needs nothing
    model.advance(ids[:, :WARM], model.start(1)).argmax()
    first = time.time()
    prompt = math.nan
    if arguments.prompt:
        model.advance(ids, model.start(1))
        cache = filled(model, arguments.depth)
        began = time.perf_counter()
        model.advance(ids, cache)
        prompt = arguments.prompt / (time.perf_counter() - began)
    cache = filled(model, arguments.depth)
    token = ids[:, :1]
    for _ in range(WARM):
        token = model.advance(token, cache).argmax(1)[:, None]
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(arguments.generate):
        token = model.advance(token, cache).argmax(1)[:, None]
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    held = sum(array.nbytes for array in cache.states.values()) * arguments.depth / cache.marks.shape[1]
    return {"prompt": prompt, "generate": arguments.generate / seconds, "cpu": cpu / arguments.generate, "first": first, "cache": held}


def filled(model: Any, depth: int) -> Any:
    """A cache of some tokens."""
    import numpy as np

    cache = model.start(1)
    for start in range(0, depth, FILL):
        model.advance(np.full((1, min(FILL, depth - start)), 10), cache)
    return cache


def read_bytes(model: Path) -> int:
    """Bytes of the weights that a generated token reads: all but the embedding where the head is a weight of its own."""
    import candle_convert as cc

    weights = cc.open(model).weights
    tied = "output.weight" not in weights
    return sum(tensor.nbytes for name, tensor in weights.items() if tied or name != "token_embd.weight")


def bandwidths(threads: int) -> list[float]:
    """Bytes a second that `threads` threads read from memory together, of some tries."""
    import numpy as np

    arrays = [np.ones(1 << 26, np.float32) for _ in range(threads)]
    found = []
    for _ in range(7):
        workers = [threading.Thread(target=array.max) for array in arrays]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found.append(sum(array.nbytes for array in arrays) / (time.perf_counter() - began))
    return found


if __name__ == "__main__":
    main()
