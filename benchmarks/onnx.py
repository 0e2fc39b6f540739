"""Latency, peak memory and cold start of ONNX models, against onnxruntime and, where it is installed, OpenVINO.

    python benchmarks/onnx.py [MODEL.onnx ...] [--runs 9] [--threads 2] [--dim length=128] [--trained] [--latency]

Default: the nine light models of the onnx package, and an encoder of MiniLM's shape at three lengths. Latencies are
medians of interleaved runs, as `candle-convert bench` measures them: an engine's process is stopped while others run.
Memory and cold start (process start to first result, kernels in the disk cache) are those of a new process.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engines import ENGINES, installed, machine, open_session
from synthetic_onnx import light_models

HERE = Path(__file__).resolve().parent
# Last, since this file would hide the package onnx; processes of engines import it again with this path.
sys.path[:] = [*(folder for folder in sys.path if Path(folder).resolve() != HERE), str(HERE)]

WARMUP = 2
"""Untimed runs."""
LENGTHS = (8, 128, 512)
"""Tokens of the encoder's inputs."""


def synthetic_inputs(session, dims):
    """Random inputs; symbolic dimensions are those of `dims`, else 1."""
    import numpy as np

    rng = np.random.default_rng(0)
    types = {
        "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
    }  # fmt: skip
    inputs = {}
    for item in session.get_inputs():
        shape = [dim if isinstance(dim, int) and dim > 0 else dims.get(dim, 1) for dim in item.shape]
        dtype = types[item.type]
        if "mask" in item.name:
            inputs[item.name] = np.ones(shape, dtype)
        elif dtype in (np.float32, np.float64):
            inputs[item.name] = rng.normal(size=shape).astype(dtype)
        else:
            inputs[item.name] = rng.integers(0, 8, shape).astype(dtype)
    return inputs


def model_inputs(session, path, arguments):
    """Inputs of a model, by name."""
    if not arguments.trained:
        return synthetic_inputs(session, dict(arguments.dim))
    import candle_convert as cc
    from real_models import inputs

    return inputs(cc.open(path), Path(path))


def first_result(engine, path, arguments):
    """Run once in this process and print its peak resident bytes."""
    session = open_session(engine, path, arguments.threads)
    session.run(None, model_inputs(session, path, arguments))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({"peak": int(status["VmHWM"].split()[0]) * 1024}))


def cold_start(engine, path, arguments):
    """Seconds of a new process with one run, and its peak memory."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--first", engine, str(path), "--threads", str(arguments.threads)]
    command += ["--trained"] * arguments.trained + [f"--dim={name}={length}" for name, length in arguments.dim]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1])["peak"]


def latencies(path, arguments):
    """Median seconds of a run of each engine."""
    from candle_convert.convert.benchmark.measure import measure

    inputs = model_inputs(open_session("candle-convert", path, arguments.threads), path, arguments)
    names, settings = installed(), {"runs": arguments.runs, "warmup": WARMUP, "threads": arguments.threads}
    return [found.median for found in measure(names, str(path), inputs, **settings)]


def cases(arguments, folder):
    """Name, path and symbolic dimensions of each case."""
    for path in arguments.models or light_models():
        yield Path(path).stem, str(path), arguments.dim
    if not arguments.models:
        path = str(Path(folder) / "encoder.onnx")
        subprocess.run([sys.executable, str(HERE / "encoder.py"), path], check=True)
        for length in LENGTHS:
            yield f"encoder, {length} tokens", path, [("length", length)]


def measure(path, arguments):
    """Cells of a row, and the time ratio."""
    ours, *peers = latencies(path, arguments)
    cells = [
        f"{ours * 1e3:.2f}",
        *(cell for theirs in peers for cell in (f"{theirs * 1e3:.2f}", f"{ours / theirs:.2f}")),
    ]
    if not arguments.latency:
        cold_start("candle-convert", path, arguments)
        (cold, peak), (their_cold, their_peak) = (cold_start(engine, path, arguments) for engine in ENGINES)
        cells += [f"{peak / 1e6:.0f}", f"{their_peak / 1e6:.0f}", f"{cold:.2f}", f"{their_cold:.2f}"]
    return cells, [ours / theirs for theirs in peers]


def dimension(text):
    """(name, length) of NAME=LENGTH."""
    name, _, length = text.partition("=")
    return name, int(length)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--runs", type=int, default=9, help="timed runs of each engine")
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine")
    parser.add_argument("--dim", type=dimension, action="append", default=[], help="NAME=LENGTH of a dimension")
    parser.add_argument("--trained", action="store_true", help="use the inputs of real_models.py")
    parser.add_argument("--latency", action="store_true", help="measure latency only")
    parser.add_argument("--first", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first:
        first_result(arguments.first, arguments.models[0], arguments)
        return
    ratios, peers = [], installed()[1:]
    print(f"{machine()}, {arguments.threads} threads\n")
    columns = ["model", "ours ms", *(name for peer in peers for name in (f"{peer} ms", "time ratio"))]
    if not arguments.latency:
        columns += ["ours peak MB", "onnxruntime peak MB", "ours cold s", "onnxruntime cold s"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with tempfile.TemporaryDirectory() as folder:
        for name, path, dims in cases(arguments, folder):
            arguments.dim = dims
            cells, found = measure(path, arguments)
            ratios.append(found)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    for peer, found in zip(peers, zip(*ratios, strict=True), strict=True):
        mean = math.exp(statistics.fmean(map(math.log, found)))
        print(f"\nGeometric mean of the time ratios to {peer}: {mean:.2f}, largest {max(found):.2f}")


if __name__ == "__main__":
    main()
