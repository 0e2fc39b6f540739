"""Inference sessions of candle-convert and its peers with the same settings, and the machine that they run on."""

import importlib.util
import json
import time

ENGINES = {"candle-convert": "candle_convert", "onnxruntime": "onnxruntime"}
"""Name and package of each engine."""
OPTIONAL = {"openvino": "openvino"}
"""Of those that are compared where they are installed."""


def installed():
    """Names of the engines on this machine."""
    return [*ENGINES, *(name for name, package in OPTIONAL.items() if importlib.util.find_spec(package))]


def machine():
    """Processor, instruction level of candle-convert, and cores."""
    from candle_convert.convert.check.machine import hardware, kernels

    return f"{hardware()['cpu']}, level {kernels()['level']}, {hardware()['cores']} cores"


def open_session(engine, path, threads):
    """Session of an engine on the CPU."""
    if engine == "candle-convert":
        import candle_convert as cc

        return cc.InferenceSession(str(path), threads=threads)
    if engine == "openvino":
        return OpenVino(path, threads)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def timed_rounds(processes, rounds, pause=0.1):
    """What each process that serves an engine measures, `rounds` times, by turns; they end then."""
    found = {engine: [] for engine in processes}
    for _ in range(rounds):
        for engine, process in processes.items():
            time.sleep(pause)
            process.stdin.write("\n")
            process.stdin.flush()
            found[engine].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return found


class OpenVino:
    """A model that OpenVINO runs in f32, with onnxruntime's interface."""

    def __init__(self, path, threads):
        from candle_convert.convert.benchmark.engines import ENGINES

        self._run = ENGINES["openvino"](str(path), threads, {})

    def run(self, _, feeds):
        return list(self._run(feeds).values())
