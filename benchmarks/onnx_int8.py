"""Quantized and half-precision ONNX models here and in onnxruntime: latency in turns, peak memory, the agreement of their results.

    python benchmarks/onnx_int8.py [--models resnet50,...] [--kinds qdq-u8s8,...] [--runs 5] [--threads 2] [--clock wall|processor] [--folder DIR]

Made once, in the folder: the light networks of the onnx package with random weights and an encoder of MiniLM's size, quantized by onnxruntime
(QDQ and operators of integers, per tensor and per channel) and by `candle-convert quantize`; and a llama-shaped net whose products have 4 bits.
Engines take turns of several runs with a pause before each: onnxruntime's threads spin for a while after a run, on a core that the other engine
needs. Memory is the most that a process of its own has resident, less what one has that only imports the engine. The last two columns are
what the floor follows from: multiplications at what the processor does with its widest vectors, weights at what it reads.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]  # onnx.py there hides the library

import numpy as np  # noqa: E402

ENGINES = {"candle-convert": "candle_convert", "onnxruntime": "onnxruntime"}
"""And their packages."""
TURNS, PAUSE = 3, 0.2
"""How often each engine runs several times, and the seconds before."""
NETWORKS = ("resnet50", "squeezenet", "shufflenet", "inception_v1")
STATIC = {
    "qdq-u8s8": {"quant_format": "QDQ"},
    "qdq-s8s8-channel": {"quant_format": "QDQ", "activation_type": "QInt8", "per_channel": True},
    "qop-u8s8-channel": {"quant_format": "QOperator", "per_channel": True},
    "qop-u8u8": {"quant_format": "QOperator", "weight_type": "QUInt8"},
}
OURS = {"ours-qdq": ("--per-channel",), "ours-qop": ("--quant-format", "qoperator")}
BITS = {"nbits-32": (32, 0), "nbits-128": (128, 0), "nbits-32-level4": (32, 4)}


def network(name):
    """A light model of the onnx package: constants folded, weights random, residual sums as Add."""
    import onnx
    import onnxruntime
    from onnx import numpy_helper, version_converter

    path = Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    model = version_converter.convert_version(onnx.load(path), 17)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath, options.log_severity_level = "/dev/shm/folded.onnx", 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    model = onnx.load(options.optimized_model_filepath)
    Path(options.optimized_model_filepath).unlink()
    del model.opset_import[1:]
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            shape = tuple(tensor.dims)
            array = rng.normal(size=shape) * (math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.1)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    for node in model.graph.node:
        if node.op_type == "Sum":
            node.op_type = "Add"
    weights, read = {tensor.name for tensor in model.graph.initializer}, {name for node in model.graph.node for name in node.input}
    for item in [item for item in model.graph.input if item.name in weights or item.name not in read]:
        model.graph.input.remove(item)
    model.ir_version = 8
    return model


class Net:
    """Collects nodes and weights."""

    def __init__(self):
        self.rng, self.nodes, self.weights = np.random.default_rng(0), [], []

    def constant(self, array):
        from onnx import numpy_helper

        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, operator, *inputs, **attributes):
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def linear(self, x, inner, out, bias=True):
        product = self.add("MatMul", x, self.constant((self.rng.normal(size=(inner, out)) / math.sqrt(inner)).astype(np.float32)))
        return self.add("Add", product, self.constant(self.rng.normal(size=out).astype(np.float32) * 0.1)) if bias else product

    def attention(self, x, width, heads, bias):
        shape, flat = self.constant(np.array([0, 0, heads, width // heads])), self.constant(np.array([0, 0, width]))
        q, k, v = (self.add("Transpose", self.add("Reshape", self.linear(x, width, width, bias), shape), perm=[0, 2, 1, 3]) for _ in "qkv")
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.add("Div", scores, self.constant(np.float32((width // heads) ** 0.5)))
        mixed = self.add("Transpose", self.add("MatMul", self.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.linear(self.add("Reshape", mixed, flat), width, width, bias)

    def model(self, inputs, output):
        from onnx import TensorProto, helper

        ends = [helper.make_tensor_value_info(*each) for each in (inputs, (output, TensorProto.FLOAT, ("batch", "length", None)))]
        graph = helper.make_graph(self.nodes, "net", ends[:1], ends[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encoder(width=384, heads=12, layers=6, inner=1536, words=2000):
    """A transformer of MiniLM's size; its input is tokens [batch, length]."""
    from onnx import TensorProto

    net = Net()
    norm = lambda x: net.add("LayerNormalization", x, net.constant(np.ones(width, np.float32)), net.constant(np.zeros(width, np.float32)))  # noqa: E731
    x = norm(net.add("Gather", net.constant(net.rng.normal(size=(words, width)).astype(np.float32)), "x"))
    for _ in range(layers):
        x = norm(net.add("Add", x, net.attention(x, width, heads, True)))
        wide = net.linear(x, width, inner)
        gate = net.add("Add", net.add("Erf", net.add("Div", wide, net.constant(np.float32(math.sqrt(2))))), net.constant(np.float32(1)))
        x = norm(net.add("Add", x, net.linear(net.add("Mul", net.add("Mul", wide, gate), net.constant(np.float32(0.5))), inner, width)))
    return net.model(("x", TensorProto.INT64, ("batch", "length")), x)


def llama(width=1024, heads=16, layers=4, inner=2816, words=2000):
    """Layers like llama's, without rotation and mask; its input is tokens [batch, length]."""
    from onnx import TensorProto

    net = Net()

    def norm(x):
        mean = net.add("ReduceMean", net.add("Mul", x, x), axes=[-1])
        root = net.add("Sqrt", net.add("Add", mean, net.constant(np.float32(1e-5))))
        return net.add("Mul", net.add("Div", x, root), net.constant(np.ones(width, np.float32)))

    x = net.add("Gather", net.constant(net.rng.normal(size=(words, width)).astype(np.float32)), "x")
    for _ in range(layers):
        x = net.add("Add", x, net.attention(norm(x), width, heads, False))
        y = norm(x)
        gate, up = net.linear(y, width, inner, False), net.linear(y, width, inner, False)
        x = net.add("Add", x, net.linear(net.add("Mul", net.add("Mul", gate, net.add("Sigmoid", gate)), up), inner, width, False))
    return net.model(("x", TensorProto.INT64, ("batch", "length")), net.linear(norm(x), width, words, False))


class Pictures:
    """Calibration data."""

    def __init__(self, name, shape):
        rng = np.random.default_rng(1)
        self.left = [{name: rng.normal(size=shape).astype(np.float32)} for _ in range(2)]

    def get_next(self):
        return self.left.pop() if self.left else None

    def set_range(self, *_):
        """All of it, always."""


def saved(folder, name, make):
    """The file of a model, made where there is none."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        make(path)
    return path


def quantized(source, target, *options):
    """A model as this project's command quantizes it."""
    subprocess.run([Path(sys.executable).with_name("candle-convert"), "quantize", source, target, *options], check=True, capture_output=True)


def dynamic(plain, **options):
    """What makes a model that onnxruntime quantizes as it runs."""
    return lambda path: __import__("onnxruntime.quantization").quantization.quantize_dynamic(str(plain), str(path), **options)


def kinds_of(folder, name):
    """Names of variants of a model, and what makes each."""
    import onnx
    from onnxruntime import quantization

    made = {"encoder": encoder, "llama": llama}.get(name, lambda: network(name))
    plain = saved(folder, name, lambda path: onnx.save(made(), path))

    def static(options):
        def make(path):
            model = onnx.load(plain)
            shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
            chosen = {
                key: getattr({"quant_format": quantization.QuantFormat}.get(key, quantization.QuantType), value) if isinstance(value, str) else value
                for key, value in options.items()
            }
            types = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
            quantization.quantize_static(str(plain), str(path), Pictures(model.graph.input[0].name, shape), **{**types, **chosen})

        return make

    def ours(options):
        def make(path):
            model = onnx.load(plain)
            shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
            data = folder / f"{name}.npz"
            np.savez(data, **{model.graph.input[0].name: np.random.default_rng(1).normal(size=shape).astype(np.float32)})
            quantized(plain, path, "int8", "--activation-type", "uint8", *options, "--calib", data)

        return make

    def blocks(size, level):
        def make(path):
            from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

            made = MatMulNBitsQuantizer(onnx.load(plain), bits=4, block_size=size, is_symmetric=True, accuracy_level=level)
            made.process()
            onnx.save(made.model.model, path)

        return make

    def half(path):
        quantized(plain, path, "fp16")

    if name == "encoder":
        rows = {"dynamic-u8": dynamic(plain, weight_type=quantization.QuantType.QUInt8), "dynamic-s8": dynamic(plain, per_channel=True)}
    elif name == "llama":
        rows = {kind: blocks(*options) for kind, options in BITS.items()}
    else:
        rows = {kind: static(options) for kind, options in STATIC.items()} | {kind: ours(options) for kind, options in OURS.items()}
    return {**rows, "fp16": half}


def opened(engine, path, threads):
    """A session of one of the engines."""
    if engine == "candle-convert":
        import candle_convert as cc

        return cc.InferenceSession(str(path), threads=threads)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def fed(session, length):
    """Made-up inputs of a session of onnxruntime."""
    rng, item = np.random.default_rng(0), session.get_inputs()[0]
    if item.type == "tensor(int64)":
        return {item.name: rng.integers(0, 2000, (1, length))}
    return {item.name: rng.normal(size=item.shape).astype({"tensor(float)": np.float32, "tensor(float16)": np.float16}[item.type])}


def resident(engine, path, length, threads):
    """Prints the most bytes that this process has resident, and what importing the engine takes."""
    __import__(ENGINES[engine])
    before = status("VmRSS")
    session = opened(engine, path, threads)
    for _ in range(2):
        session.run(None, fed(session, length))
    print(json.dumps(status("VmHWM") - before))


def status(name):
    """A line of this process's status in bytes."""
    return int(dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())[name].split()[0]) * 1024


def peak(engine, path, length, threads):
    """Megabytes that a process of its own takes."""
    command = [sys.executable, __file__, "--resident", engine, str(path), "--length", str(length), "--threads", str(threads)]
    subprocess.run(command, capture_output=True, check=True)
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]) / 1e6


def in_turns(path, length, threads, runs, clock):
    """Median milliseconds of each engine, and the largest difference of the first results relative to their magnitude."""
    sessions = [opened(engine, path, threads) for engine in ENGINES]
    feeds = fed(sessions[1], length)
    found = [np.asarray(session.run(None, feeds)[0], np.float64) for session in sessions]
    taken = [[] for _ in ENGINES]
    for _ in range(TURNS):
        for session, times in zip(sessions, taken, strict=True):
            time.sleep(PAUSE)
            session.run(None, feeds)
            for _ in range(runs):
                start = clock()
                session.run(None, feeds)
                times.append(1e3 * (clock() - start))
    gap = float(np.abs(found[0] - found[1]).max() / max(1e-30, np.abs(found[1]).max()))
    return [statistics.median(times) for times in taken], gap


def products(path, length):
    """Multiplications of a model's convolutions and products of matrices for one run, and bytes of its weights."""
    import candle_convert as cc
    from candle_convert.runtime.infer import infer
    from candle_convert.runtime.work import operations

    graph = cc.open(path)
    for value in graph.inputs:
        value.shape = tuple(dim if isinstance(dim, int) else {"batch": 1}.get(str(dim), length) for dim in value.shape)
    infer(graph)
    heavy = ("Conv", "MatMul", "Gemm", "Integer")
    return sum(operations(node) for node in graph.nodes if any(name in node.op.name for name in heavy)), graph.nbytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?")
    parser.add_argument("--models", default=",".join((*NETWORKS, "encoder", "llama")))
    parser.add_argument("--kinds")
    parser.add_argument("--lengths")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm/onnx_int8"))
    parser.add_argument("--resident", choices=tuple(ENGINES))
    parser.add_argument("--length", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.resident:
        resident(chosen.resident, chosen.path, chosen.length, chosen.threads)
        return
    chosen.folder.mkdir(exist_ok=True)
    clock = time.perf_counter if chosen.clock == "wall" else time.process_time
    ratios = []
    print("| model | kind | length | ours ms | onnxruntime ms | ratio | difference | ours MB | onnxruntime MB | G multiplications | weights MB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in chosen.models.split(","):
        lengths = {"encoder": (8, 128, 512), "llama": (1, 128)}.get(name, (1,))
        for kind, make in kinds_of(chosen.folder, name).items():
            if chosen.kinds and kind not in chosen.kinds.split(","):
                continue
            path = saved(chosen.folder, f"{name}.{kind}", make)
            for length in lengths if chosen.lengths is None else map(int, chosen.lengths.split(",")):
                (ours, theirs), gap = in_turns(path, length, chosen.threads, chosen.runs, clock)
                ratios.append(ours / theirs)
                memory = ["", ""] if chosen.no_memory else [f"{peak(engine, path, length, chosen.threads):.0f}" for engine in ENGINES]
                count, nbytes = products(path, length)
                cells = (f"{ours:.2f}", f"{theirs:.2f}", f"{ratios[-1]:.2f}", f"{gap:.1e}", *memory, f"{count / 1e9:.2f}", f"{nbytes / 1e6:.1f}")
                print(f"| {name} | {kind} | {length} | {' | '.join(cells)} |", flush=True)
    print(f"\nGeometric mean of the ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
