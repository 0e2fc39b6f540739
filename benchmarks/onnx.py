"""ONNX models here and in onnxruntime: latency and peak memory in turns, and cold start.

    python benchmarks/onnx.py [MODEL.onnx ...] [--runs 9] [--threads 2]

Without models, the nine light ones of the standard's suite. Latencies are medians of runs that take turns in one process; memory and cold
start (process start to first result, kernels in the disk cache) are those of a process for each.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]  # this file's name hides the library's

ENGINES = ("candle-convert", "onnxruntime")


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


def feeds(session):
    """Made-up inputs; lengths that are not given are 1."""
    import numpy as np

    rng = np.random.default_rng(0)
    types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    found = {}
    for item in session.get_inputs():
        shape = [dim if isinstance(dim, int) and dim > 0 else 1 for dim in item.shape]
        dtype = types[item.type]
        found[item.name] = rng.normal(size=shape).astype(dtype) if dtype in (np.float32, np.float64) else rng.integers(0, 8, shape).astype(dtype)
    return found


def first_result(engine, path, threads):
    """One run in this process: prints seconds since the process began and peak resident bytes."""
    session = opened(engine, path, threads)
    session.run(None, feeds(session))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({"peak": int(status["VmHWM"].split()[0]) * 1024}))


def in_a_process(engine, path, threads):
    """Seconds from the start of a new process to its end, after one run, and its peak memory."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--first", engine, str(path), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1])["peak"]


def in_turns(path, threads, runs):
    """Median seconds of each engine."""
    sessions = [opened(engine, path, threads) for engine in ENGINES]
    fed = feeds(sessions[1])
    taken = [[] for _ in ENGINES]
    for turn in range(runs + 2):
        for session, seconds in zip(sessions, taken, strict=True):
            start = time.perf_counter()
            session.run(None, fed)
            if turn >= 2:
                seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in taken]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--first", choices=ENGINES)
    arguments = parser.parse_args()
    if arguments.first:
        first_result(arguments.first, arguments.models[0], arguments.threads)
        return
    ratios = []
    print("| model | ours ms | onnxruntime ms | ratio | ours MB | onnxruntime MB | ours cold s | onnxruntime cold s |")
    print("|---|---|---|---|---|---|---|---|")
    for path in [str(model) for model in arguments.models or light_models()]:
        ours, theirs = in_turns(path, arguments.threads, arguments.runs)
        in_a_process(ENGINES[0], path, arguments.threads)
        (cold, peak), (their_cold, their_peak) = (in_a_process(engine, path, arguments.threads) for engine in ENGINES)
        ratios.append(ours / theirs)
        cells = [f"{ours * 1e3:.2f}", f"{theirs * 1e3:.2f}", f"{ratios[-1]:.2f}", f"{peak / 1e6:.0f}", f"{their_peak / 1e6:.0f}", f"{cold:.2f}"]
        print(f"| {Path(path).stem} | {' | '.join(cells)} | {their_cold:.2f} |", flush=True)
    print(f"\nGeometric mean of the ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
