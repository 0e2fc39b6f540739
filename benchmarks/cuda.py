"""A card's work in one command: copies, matrix products, quantized rows and encoders, and ONNX models here and in
onnxruntime-gpu or torch where these are installed.

    python benchmarks/cuda.py [MODEL.onnx ...] [--device cuda:0] [--runs 20] [--side 4096] [--json]

Without models, the nine light ones of the standard's suite. Times are medians of runs that take turns. Where there is no card nothing is
measured, which is said, and the exit status is 1.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]  # this file's name hides numba's

import numpy as np  # noqa: E402

COPIED = 256 << 20


def seconds(function, runs, synchronize):
    """The median time of a call, the device idle before and after."""
    function()
    found = []
    for _ in range(runs):
        synchronize()
        start = time.perf_counter()
        function()
        synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def copies(runs):
    """GB/s from host to device, back, and within the device, where each byte is read and written."""
    from numba import cuda

    host = cuda.pinned_array(COPIED, np.uint8)
    here, there = cuda.device_array(COPIED, np.uint8), cuda.device_array(COPIED, np.uint8)
    rates = {
        "host to device": (lambda: here.copy_to_device(host), 1),
        "device to host": (lambda: here.copy_to_host(host), 1),
        "device to device": (lambda: there.copy_to_device(here), 2),
    }
    return {name: times * COPIED / seconds(function, runs, cuda.synchronize) / 1e9 for name, (function, times) in rates.items()}


def product_graph(side):
    """x w with a weight."""
    from candle_convert.runtime.build import Builder
    from candle_convert.runtime.dtype import F32
    from candle_convert.runtime.graph import Graph, Value

    graph = Graph()
    x = Value("x", F32, (side, side))
    graph.inputs, graph.values = [x], {"x": x}
    build = Builder(graph)
    weight = build.constant(np.random.default_rng(0).normal(size=(side, side)).astype(np.float32))
    graph.outputs = [build.add("MatMul", [x, weight])]
    return graph


def products(device, side, runs):
    """TFLOP/s of an f32 product of square matrices that are on the device, here and in torch."""
    from candle_convert.runtime.cuda.array import DeviceArray
    from candle_convert.runtime.session import Session
    from numba import cuda

    work = 2 * side**3 / 1e12
    session = Session(product_graph(side), device=device)
    x = DeviceArray.taken(cuda.to_device(np.ones((side, side), np.float32)))
    found = {"candle-convert": work / seconds(lambda: session.run_on_device({"x": x}), runs, cuda.synchronize)}
    torch = with_cuda("torch")
    if torch is not None:
        one = torch.ones(side, side, device=device)
        found["torch"] = work / seconds(lambda: one @ one, runs, torch.cuda.synchronize)
    return found


def quantized_rows(device, runs):
    """GB/s at which one row meets a weight of blocks [11008, 4096] that is on the device, as in decoding a token; f32 rows and 8-bit ones."""
    from candle_convert.runtime.build import Builder
    from candle_convert.runtime.cuda.array import DeviceArray
    from candle_convert.runtime.dtype import DTYPES, F32
    from candle_convert.runtime.graph import Graph, Value
    from candle_convert.runtime.session import Session
    from candle_convert.runtime.storage import Held
    from candle_convert.runtime.tensor import Tensor
    from numba import cuda

    rows, columns = 11008, 4096
    x = DeviceArray.taken(cuda.to_device(np.ones((1, columns), np.float32)))
    for name in ("q8_0", "q4_0", "q4_k", "q6_k", "iq4_xs", "iq2_xs"):
        dtype = DTYPES[name]
        size = dtype.nbytes(rows * columns)
        row = {"type": name}
        for activations in ("f32", "q8") if name in ("q8_0", "q4_0", "q4_k", "q6_k") else ("f32",):
            graph = Graph()
            value = Value("x", F32, (1, columns))
            graph.inputs, graph.values = [value], {"x": value}
            build = Builder(graph)
            weight = build.weight(Tensor(dtype, (rows, columns), Held(bytes(size))))
            graph.outputs = [build.add("Linear", [value, weight], {"activations": activations}, domain="candle")]
            session = Session(graph, device=device)
            row[activations] = size / seconds(lambda: session.run_on_device({"x": x}), runs, cuda.synchronize) / 1e9  # noqa: B023
        yield row


def encoders(device, runs):
    """GB/s of f32 in which blocks are made, copies to the device and back included."""
    from candle_convert.ops.quants import codec_of
    from candle_convert.ops.quants.device.encoding import encoded
    from candle_convert.runtime.quant import block_type
    from numba import cuda

    rows = np.random.default_rng(0).standard_normal((4096, 4096), np.float32)
    for name in ("q8_0", "q4_0", "q4_k", "q6_k"):
        codec = codec_of(block_type(name))
        yield {"type": name, "GB/s": rows.nbytes / seconds(lambda: encoded(codec, rows, device=device), runs, cuda.synchronize) / 1e9}  # noqa: B023


def with_cuda(name):
    """A library that is installed and sees a card, None otherwise."""
    try:
        module = __import__(name)
    except ImportError:
        return None
    if name == "torch":
        return module if module.cuda.is_available() else None
    return module if "CUDAExecutionProvider" in module.get_available_providers() else None


def models(paths, device, runs):
    """Milliseconds of each model, its inputs on the host, and what ran where."""
    import candle_convert as cc
    from candle_convert.convert.running.feeds import feeds
    from candle_convert.runtime.cuda.report import placement_of
    from candle_convert.runtime.session import Session
    from numba import cuda

    onnxruntime = with_cuda("onnxruntime")
    for path in paths:
        graph = cc.open(path)
        fed, _ = feeds(graph, [])
        session = Session(graph, device=device)
        row = {"model": Path(path).stem, "candle-convert": 1e3 * seconds(lambda: session.run(None, fed), runs, cuda.synchronize)}  # noqa: B023
        if onnxruntime is not None:
            other = onnxruntime.InferenceSession(str(path), providers=["CUDAExecutionProvider"])
            row["onnxruntime-gpu"] = 1e3 * seconds(lambda: other.run(None, fed), runs, cuda.synchronize)  # noqa: B023
            row["difference"] = max(
                float(np.max(np.abs(one - two) / (np.abs(two) + 1e-6))) for one, two in zip(session.run(None, fed), other.run(None, fed), strict=True)
            )
        placement = placement_of(session.program)
        held = placement.weights + placement.values
        yield {**row, "launches": placement.launches, "on the CPU": sum(placement.host.values()), "device bytes": held}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    from candle_convert.runtime.cuda.machine import state

    found = state()
    if found.simulated or not found.devices:
        print(f"Nothing was measured: {found.why or 'NUMBA_ENABLE_CUDASIM is set, which simulates a card'}. {found.hint or ''}".strip())
        return 1
    import onnx

    paths = arguments.models or sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))
    result = {
        "devices": found.devices, "numba-cuda": found.package, "GB/s": copies(arguments.runs),
        f"TFLOP/s of {arguments.side} x {arguments.side} f32": products(arguments.device, arguments.side, arguments.runs),
        "GB/s of a weight that one row meets": list(quantized_rows(arguments.device, arguments.runs)),
        "encoders": list(encoders(arguments.device, max(1, arguments.runs // 4))),
        "ms": list(models(paths, arguments.device, arguments.runs)),
    }
    if arguments.json:
        print(json.dumps(result, indent=1))
        return 0
    for name, value in result.items():
        rows = value if isinstance(value, list | tuple) else [value]
        print(name)
        for row in rows:
            texts = row.items() if isinstance(row, dict) else [("", row)]
            print("  " + "   ".join(f"{key} {item:.4g}" if isinstance(item, float) else f"{key} {item}" for key, item in texts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
