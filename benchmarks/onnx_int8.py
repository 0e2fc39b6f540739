"""Latency, peak memory and accuracy of quantized and half-precision ONNX models, against onnxruntime.

    python benchmarks/onnx_int8.py [--models resnet50,...] [--kinds qdq-u8s8,...] [--runs 5] [--threads 2]
        [--clock wall|processor] [--folder DIR]

The models are made once, in the folder: light networks of the onnx package and an encoder of MiniLM's size with random
weights, quantized by onnxruntime (QDQ and QOperator, per tensor and per channel) and by `candle-convert quantize`; and
a llama-shaped decoder with 4-bit MatMulNBits. Runs of the engines are interleaved, with a pause before each turn:
onnxruntime's threads spin for a while after a run on a core that the other engine needs. Peak memory is that of a new
process, less what it has resident after importing the engine. The last two columns give the floor: multiply-adds over
the peak rate of the processor, and bytes of weights over the memory bandwidth.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from engines import ENGINES, open_session
from synthetic_onnx import encoder, light_network, llama

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # onnx.py here would hide the package

TURNS, PAUSE = 3, 0.2
"""Turns of several runs for each engine, and the seconds before a turn."""
NETWORKS = ("resnet50", "squeezenet", "shufflenet", "inception_v1")
VOCABULARY = 2000
STATIC = {
    "qdq-u8s8": {"quant_format": "QDQ"},
    "qdq-s8s8-channel": {"quant_format": "QDQ", "activation_type": "QInt8", "per_channel": True},
    "qop-u8s8-channel": {"quant_format": "QOperator", "per_channel": True},
    "qop-u8u8": {"quant_format": "QOperator", "weight_type": "QUInt8"},
}
OURS = {"ours-qdq": ("--per-channel",), "ours-qop": ("--quant-format", "qoperator")}
BITS = {"nbits-32": (32, 0), "nbits-128": (128, 0), "nbits-32-level4": (32, 4)}
"""Block size and accuracy level of MatMulNBits."""
HEADS = (
    "model", "kind", "length", "ours ms", "onnxruntime ms", "time ratio", "difference", "ours MB", "onnxruntime MB",
    "G multiply-adds", "weights MB",
)  # fmt: skip


class CalibrationData:
    """Two random samples for onnxruntime's static quantization."""

    def __init__(self, name, shape):
        rng = np.random.default_rng(1)
        self.left = [{name: rng.normal(size=shape).astype(np.float32)} for _ in range(2)]

    def get_next(self):
        """Next sample, None at the end."""
        return self.left.pop() if self.left else None

    def set_range(self, *_):
        """Required by onnxruntime; every pass uses all samples."""


def model_file(folder, name, make):
    """Path of a model, which `make` writes if it does not exist."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        make(path)
    return path


def quantized(source, target, *options):
    """Quantize a model with `candle-convert quantize`."""
    command = [Path(sys.executable).with_name("candle-convert"), "quantize", source, target, *options]
    subprocess.run(command, check=True, capture_output=True)


def first_input(model):
    """Name and shape of the first input of an ONNX model."""
    item = model.graph.input[0]
    return item.name, [dim.dim_value for dim in item.type.tensor_type.shape.dim]


def dynamic(plain, **options):
    """Writer of a model quantized dynamically by onnxruntime."""

    def make(path):
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(str(plain), str(path), **options)

    return make


def static(plain, options):
    """Writer of a model quantized statically by onnxruntime."""

    def make(path):
        import onnx
        from onnxruntime import quantization

        enums = {"quant_format": quantization.QuantFormat}
        chosen = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
        for key, value in options.items():
            is_name = isinstance(value, str)
            chosen[key] = getattr(enums.get(key, quantization.QuantType), value) if is_name else value
        data = CalibrationData(*first_input(onnx.load(plain)))
        quantization.quantize_static(str(plain), str(path), data, **chosen)

    return make


def ours(plain, options):
    """Writer of a model quantized to int8 by `candle-convert quantize`."""

    def make(path):
        import onnx

        name, shape = first_input(onnx.load(plain))
        data = plain.with_suffix(".npz")
        np.savez(data, **{name: np.random.default_rng(1).normal(size=shape).astype(np.float32)})
        quantized(plain, path, "int8", "--activation-type", "uint8", *options, "--calib", data)

    return make


def nbits(plain, size, level):
    """Writer of a model with 4-bit MatMulNBits by onnxruntime."""

    def make(path):
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        options = {"bits": 4, "block_size": size, "is_symmetric": True, "accuracy_level": level}
        made = MatMulNBitsQuantizer(onnx.load(plain), **options)
        made.process()
        onnx.save(made.model.model, path)

    return make


def kinds_of(folder, name):
    """Variants of a model: name -> function that writes the file."""
    import onnx
    from onnxruntime.quantization import QuantType

    build = {"encoder": encoder, "llama": llama}.get(name, lambda: light_network(name))
    plain = model_file(folder, name, lambda path: onnx.save(build(), path))
    if name == "encoder":
        unsigned = dynamic(plain, weight_type=QuantType.QUInt8)
        kinds = {"dynamic-u8": unsigned, "dynamic-s8": dynamic(plain, per_channel=True)}
    elif name == "llama":
        kinds = {kind: nbits(plain, *options) for kind, options in BITS.items()}
    else:
        kinds = {kind: static(plain, options) for kind, options in STATIC.items()}
        kinds |= {kind: ours(plain, options) for kind, options in OURS.items()}
    return {**kinds, "fp16": lambda path: quantized(plain, path, "fp16")}


def random_inputs(session, length):
    """Random inputs of an onnxruntime session."""
    rng, item = np.random.default_rng(0), session.get_inputs()[0]
    if item.type == "tensor(int64)":
        return {item.name: rng.integers(0, VOCABULARY, (1, length))}
    dtype = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[item.type]
    return {item.name: rng.normal(size=item.shape).astype(dtype)}


def print_peak(engine, path, length, threads):
    """Run a model in this process; print its peak resident bytes, less those after importing the engine."""
    __import__(ENGINES[engine])
    before = status("VmRSS")
    session = open_session(engine, path, threads)
    for _ in range(2):
        session.run(None, random_inputs(session, length))
    print(json.dumps(status("VmHWM") - before))


def status(name):
    """A field of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)[name].split()[0]) * 1024


def peak(engine, path, length, threads):
    """Peak megabytes of a new process."""
    command = [sys.executable, __file__, "--resident", engine, str(path)]
    command += ["--length", str(length), "--threads", str(threads)]
    subprocess.run(command, capture_output=True, check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]) / 1e6


def latencies(path, length, threads, runs, clock):
    """Median milliseconds of each engine, and the largest relative difference of the first outputs."""
    sessions = [open_session(engine, path, threads) for engine in ENGINES]
    inputs = random_inputs(sessions[1], length)
    found = [np.asarray(session.run(None, inputs)[0], np.float64) for session in sessions]
    times = [[] for _ in ENGINES]
    for _ in range(TURNS):
        for session, milliseconds in zip(sessions, times, strict=True):
            time.sleep(PAUSE)
            session.run(None, inputs)
            for _ in range(runs):
                start = clock()
                session.run(None, inputs)
                milliseconds.append(1e3 * (clock() - start))
    difference = float(np.abs(found[0] - found[1]).max() / max(1e-30, np.abs(found[1]).max()))
    return [statistics.median(milliseconds) for milliseconds in times], difference


def work(path, length):
    """Multiply-adds of the convolutions and matrix products of one run, and bytes of the weights."""
    import candle_convert as cc
    from candle_convert.runtime.ir.cost import operations
    from candle_convert.runtime.ir.shape_inference import infer

    graph = cc.open(path)
    for value in graph.inputs:
        value.shape = tuple(dim if isinstance(dim, int) else {"batch": 1}.get(str(dim), length) for dim in value.shape)
    infer(graph)
    heavy = ("Conv", "MatMul", "Gemm", "Integer")
    return sum(operations(node) for node in graph.nodes if any(name in node.op.name for name in heavy)), graph.nbytes


def measure(path, length, arguments):
    """Cells of a row, and the time ratio."""
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    (mine, theirs), difference = latencies(path, length, arguments.threads, arguments.runs, clock)
    memory = ["", ""]
    if not arguments.no_memory:
        memory = [f"{peak(engine, path, length, arguments.threads):.0f}" for engine in ENGINES]
    count, nbytes = work(path, length)
    cells = [f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}", f"{difference:.1e}", *memory]
    return [*cells, f"{count / 1e9:.2f}", f"{nbytes / 1e6:.1f}"], mine / theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--models", default=",".join((*NETWORKS, "encoder", "llama")), help="comma-separated models")
    parser.add_argument("--kinds", help="comma-separated kinds of quantization; default: all")
    parser.add_argument("--lengths", help="comma-separated lengths of the encoder's and decoder's inputs")
    parser.add_argument("--runs", type=int, default=5, help="runs of each of the turns")
    parser.add_argument("--threads", type=int, default=2, help="threads of each engine")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="time to measure")
    parser.add_argument("--no-memory", action="store_true", help="skip peak memory")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm/onnx_int8"), help="folder of the models")
    parser.add_argument("--resident", choices=tuple(ENGINES), help="print the peak memory of one engine")
    parser.add_argument("--length", type=int, default=1, help="input length of --resident")
    arguments = parser.parse_args()
    if arguments.resident:
        print_peak(arguments.resident, arguments.path, arguments.length, arguments.threads)
        return
    arguments.folder.mkdir(exist_ok=True)
    ratios = []
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for name in arguments.models.split(","):
        lengths = {"encoder": (8, 128, 512), "llama": (1, 128)}.get(name, (1,))
        if arguments.lengths is not None:
            lengths = [int(length) for length in arguments.lengths.split(",")]
        for kind, make in kinds_of(arguments.folder, name).items():
            if arguments.kinds and kind not in arguments.kinds.split(","):
                continue
            path = model_file(arguments.folder, f"{name}.{kind}", make)
            for length in lengths:
                cells, ratio = measure(path, length, arguments)
                ratios.append(ratio)
                print(f"| {name} | {kind} | {length} | {' | '.join(cells)} |", flush=True)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"\nGeometric mean of the time ratios: {mean:.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
