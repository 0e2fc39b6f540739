"""ONNX models here and in onnxruntime: latency and peak memory in turns, and cold start.

    python benchmarks/onnx.py [MODEL.onnx ...] [--runs 9] [--threads 2] [--dim length=128] [--trained] [--latency]

Without models, the nine light ones of the standard's suite, and an encoder of MiniLM's shape at three lengths. Latencies are medians of runs that
take turns in one process; before each there is a pause, since onnxruntime's threads keep their cores busy for tens of milliseconds after a run,
which would be the other's loss. Memory and cold start (process start to first result, kernels in the disk cache) are those of a process for each;
--latency leaves them out. --trained feeds models what `real_models.py` makes for them.
"""

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]  # this file's name hides the library's

ENGINES = ("candle-convert", "onnxruntime")
PAUSE = 0.06
"""Seconds before each run."""
LENGTHS = (8, 128, 512)
"""Of the encoder's texts."""


def light_models():
    """The light models that the onnx package ships."""
    import onnx

    return sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))


def opened(engine, path, threads):
    """A session of one of the engines."""
    if engine == "candle-convert":
        import candle_convert as cc

        return cc.InferenceSession(path, threads=threads)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feeds(session, dims):
    """Made-up inputs; lengths that are not given are those of `dims`, else 1."""
    import numpy as np

    rng = np.random.default_rng(0)
    types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    found = {}
    for item in session.get_inputs():
        shape = [dim if isinstance(dim, int) and dim > 0 else dims.get(dim, 1) for dim in item.shape]
        dtype = types[item.type]
        if "mask" in item.name:
            found[item.name] = np.ones(shape, dtype)
        else:
            found[item.name] = rng.normal(size=shape).astype(dtype) if dtype in (np.float32, np.float64) else rng.integers(0, 8, shape).astype(dtype)
    return found


def fed(session, path, arguments):
    """The inputs of a model."""
    if not arguments.trained:
        return feeds(session, dict(arguments.dim))
    import candle_convert as cc

    return beside("real_models").inputs(cc.open(path), Path(path))


def beside(name):
    """Another file of this folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_result(engine, path, arguments):
    """One run in this process: prints seconds since the process began and peak resident bytes."""
    session = opened(engine, path, arguments.threads)
    session.run(None, fed(session, path, arguments))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({"peak": int(status["VmHWM"].split()[0]) * 1024}))


def in_a_process(engine, path, arguments):
    """Seconds from the start of a new process to its end, after one run, and its peak memory."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--first", engine, str(path), "--threads", str(arguments.threads)]
    command += ["--trained"] * arguments.trained + [f"--dim={name}={length}" for name, length in arguments.dim]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1])["peak"]


def in_turns(path, arguments):
    """Median seconds of each engine."""
    sessions = [opened(engine, path, arguments.threads) for engine in ENGINES]
    given = fed(sessions[1], path, arguments)
    taken = [[] for _ in ENGINES]
    for turn in range(arguments.runs + 2):
        for session, seconds in zip(sessions, taken, strict=True):
            time.sleep(PAUSE)
            start = time.perf_counter()
            session.run(None, given)
            if turn >= 2:
                seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in taken]


def cases(arguments, folder):
    """Names, paths and lengths to measure."""
    for path in arguments.models or light_models():
        yield Path(path).stem, str(path), arguments.dim
    if not arguments.models:
        path = str(Path(folder) / "encoder.onnx")
        subprocess.run([sys.executable, str(Path(__file__).with_name("encoder.py")), path], check=True)
        for length in LENGTHS:
            yield f"encoder, {length} tokens", path, [("length", length)]


def measured(path, arguments):
    """Cells of a row, and the ratio of the latencies."""
    ours, theirs = in_turns(path, arguments)
    cells = [f"{ours * 1e3:.2f}", f"{theirs * 1e3:.2f}", f"{ours / theirs:.2f}"]
    if not arguments.latency:
        in_a_process(ENGINES[0], path, arguments)
        (cold, peak), (their_cold, their_peak) = (in_a_process(engine, path, arguments) for engine in ENGINES)
        cells += [f"{peak / 1e6:.0f}", f"{their_peak / 1e6:.0f}", f"{cold:.2f}", f"{their_cold:.2f}"]
    return cells, ours / theirs


def pair(text):
    """A length by its name."""
    name, _, length = text.partition("=")
    return name, int(length)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dim", type=pair, action="append", default=[])
    parser.add_argument("--trained", action="store_true")
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--first", choices=ENGINES)
    arguments = parser.parse_args()
    if arguments.first:
        first_result(arguments.first, arguments.models[0], arguments)
        return
    ratios = []
    columns = ["model", "ours ms", "onnxruntime ms", "ratio"]
    columns += [] if arguments.latency else ["ours MB", "onnxruntime MB", "ours cold s", "onnxruntime cold s"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with tempfile.TemporaryDirectory() as folder:
        for name, path, dims in cases(arguments, folder):
            arguments.dim = dims
            cells, ratio = measured(path, arguments)
            ratios.append(ratio)
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\nGeometric mean of the ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
