"""All CUDA benchmarks: copies, GEMM, quantized GEMV and GEMM, a language model, an encoder, networks, block encoders.

    python benchmarks/cuda.py [MODEL.onnx ...] [--device cuda:0] [--runs 20] [--parts copies,products] [--json]

Prints a table for docs/benchmarks/cuda.md. Default models: the light ones of the onnx package. onnxruntime-gpu and
torch are measured too if they are installed and see the GPU. Times are medians of runs, synchronized before and
after. Quantized GEMV and generated tokens are given as a share of the measured bandwidth of copies on the GPU,
quantized GEMM and prompts as a share of the bf16 GEMM rate. Without a GPU it prints one line and exits with status 1.
`--tiny` runs every part once on sizes that the simulator (NUMBA_ENABLE_CUDASIM=1) can compute; its times mean
nothing.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]  # this file would hide the package cuda

import numpy as np  # noqa: E402

INTEGERS = ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "iq4_xs")


@dataclass
class Size:
    """Sizes of all parts."""

    copied: int = 256 << 20
    """Bytes of a copy."""
    side: int = 8192
    """Rows and columns of the matrices of a dense GEMM."""
    weight: tuple = (11008, 4096)
    """Shape of a quantized weight."""
    weights: int = 8
    """Weights that a quantized GEMV meets in one run: more bytes than the L2 cache holds, launched as one CUDA
    graph."""
    rows: int = 512
    """Rows of activations of a quantized GEMM."""
    types: tuple = ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "q2_k", "q3_k", "iq4_xs", "mxfp4", "iq2_xs")
    language: tuple = (("q8_0", "q4_k"), 32000, 2048, 5632, 22, 32, 4)
    """Types, vocabulary, width, hidden units, layers, heads, KV heads: 1.1 billion weights."""
    prompt: int = 512
    generate: int = 128
    encoder: tuple = (12, 768, 12, 3072, 128)
    """Layers, width, heads, hidden units, length: BERT base."""
    encoded: tuple = (4096, 4096)
    """Shape of the f32 rows that block encoders read."""


TINY = Size(1 << 10, 8, (2, 32), 1, 5, ("q8_0",), (("q8_0",), 8, 32, 32, 1, 1, 1), 2, 2, (1, 4, 1, 4, 2), (2, 32))


@dataclass
class Report:
    """Rows of the table, printed as they are measured; `references` are rates by name, of which other rows are a
    share."""

    device: str
    runs: int
    size: Size
    quiet: bool = False
    rows: list = field(default_factory=list)
    references: dict = field(default_factory=dict)

    def add(self, what, value, unit, against=None, other=None, note=""):
        """Add a row; `against` names the reference rate, `other` is (name of a library, its value)."""
        reference = self.references.get(against)
        self.rows.append({
            "what": what, "value": float(value), "unit": unit,
            "share": None if not reference else float(value) / reference, "of": against or "",
            "other": other and {"name": other[0], "value": float(other[1])}, "note": note,
        })  # fmt: skip
        if not self.quiet:
            print(line_of(self.rows[-1]), flush=True)

    def seconds(self, function):
        """Median seconds of a call."""
        from numba import cuda

        function()
        found = []
        for _ in range(self.runs):
            cuda.synchronize()
            start = time.perf_counter()
            function()
            cuda.synchronize()
            found.append(time.perf_counter() - start)
        return statistics.median(found)


def graph_of(build, **inputs):
    """Graph with inputs of these dtypes and shapes and the output of `build(builder, *inputs)`."""
    from candle_convert.runtime.ir.builder import Builder
    from candle_convert.runtime.ir.graph import Graph, Value

    graph = Graph()
    graph.inputs = [Value(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    graph.values = {value.name: value for value in graph.inputs}
    graph.outputs = [build(Builder(graph), *graph.inputs)]
    return graph


def on_device(array):
    """Copy an array to the GPU."""
    from candle_convert.runtime.cuda.memory.device_array import DeviceArray
    from numba import cuda

    if array.dtype.name == "bfloat16":
        held = DeviceArray.wrap(cuda.to_device(array.view(np.uint16)))
        return DeviceArray(array.dtype, array.shape, held.bytes, held)
    return DeviceArray.wrap(cuda.to_device(array))


def runner(graph, device, arrays, **options):
    """Function that runs a graph on arrays on the GPU, and the names of its kernels."""
    from candle_convert.runtime.cuda.kernel.kernel import Launch
    from candle_convert.runtime.session import Session

    session = Session(graph, device=device, **options)
    inputs = {name: on_device(array) for name, array in arrays.items()}
    session.run_on_device(inputs)
    kernels = sorted({step.kernel.title for step in session.program.plans[-1].steps if isinstance(step, Launch)})
    return lambda: session.run_on_device(inputs), ", ".join(kernels)


def with_cuda(name):
    """Import a library; None if it is not installed or sees no GPU."""
    try:
        module = __import__(name)
    except ImportError:
        return None
    if name == "torch":
        return module if module.cuda.is_available() else None
    return module if "CUDAExecutionProvider" in module.get_available_providers() else None


def copies(report):
    """Bandwidth of copies."""
    from numba import cuda

    count = report.size.copied
    host = cuda.pinned_array(count, np.uint8)
    source, target = (cuda.device_array(count, np.uint8) for _ in range(2))
    directions = {
        "copy host to device": (lambda: source.copy_to_device(host), 1),
        "copy device to host": (lambda: source.copy_to_host(host), 1),
        "copy device to device, read and written": (lambda: target.copy_to_device(source), 2),
    }
    for name, (function, times) in directions.items():
        rate = times * count / report.seconds(function) / 1e9
        report.add(name, rate, "GB/s")
    report.references["copy"] = rate


def products(report):
    """Dense GEMM of square matrices, one of them a weight."""
    from candle_convert.runtime.tensor.dtype import DTYPES

    side, torch = report.size.side, with_cuda("torch")
    work = 2 * side**3 / 1e12
    for name in ("f32", "f16", "bf16"):
        dtype = DTYPES[name].as_numpy()
        weight = np.random.default_rng(0).standard_normal((side, side), np.float32).astype(dtype)

        def build(builder, x, weight=weight):
            return builder.add("MatMul", [x, builder.constant(weight)])

        graph = graph_of(build, x=(DTYPES[name], (side, side)))
        function, kernels = runner(graph, report.device, {"x": np.ones((side, side), dtype)})
        rate = work / report.seconds(function)
        other = None
        if torch is not None:
            dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
            ones = torch.ones(side, side, device=report.device, dtype=dtypes[name])
            other = ("torch", work / report.seconds(lambda ones=ones: ones @ ones))
        report.add(f"GEMM {side} x {side}, {name}", rate, "TFLOP/s", other=other, note=kernels)
        report.references[name] = max(rate, other[1] if other else 0)


def repeated_blocks(name, rows, columns):
    """Quantized weight of a few random rows, repeated."""
    from candle_convert.runtime.tensor import block_codec
    from candle_convert.runtime.tensor.block_codec import codec_of
    from candle_convert.runtime.tensor.storage import Held
    from candle_convert.runtime.tensor.stored_tensor import StoredTensor

    dtype = block_codec.block_type(name)
    few = np.random.default_rng(0).standard_normal((min(rows, 16), columns)).astype(np.float32) / 16
    codec = codec_of(dtype)
    importance = np.ones(columns, np.float32) if codec.needs_importance else None
    made = np.asarray(block_codec.encoded(codec, few, importance)).reshape(len(few), -1)
    blocks = np.tile(made, (-(-rows // len(few)), 1))[:rows]
    return StoredTensor(dtype, (rows, columns), Held(blocks.tobytes()))


def quantized(report):
    """Quantized GEMV (one row, a generated token) and GEMM (many rows, a prompt), weights on the GPU."""
    from candle_convert.runtime.tensor.dtype import F32
    from candle_convert.runtime.tensor.storage import Held
    from candle_convert.runtime.tensor.stored_tensor import StoredTensor

    rows, columns = report.size.weight
    for name in report.size.types:
        weight = repeated_blocks(name, rows, columns)
        for activations in ("f32", "q8") if name in INTEGERS else ("f32",):
            for count in (1, report.size.rows):
                number = report.size.weights if count == 1 else 1

                def build(builder, x, weight=weight, activations=activations, number=number):
                    options = {"activations": activations}
                    held = [StoredTensor(weight.dtype, weight.shape, Held(bytes(weight.raw()))) for _ in range(number)]
                    found = [builder.add("Linear", [x, builder.weight(w)], options, domain="candle") for w in held]
                    return found[0] if number == 1 else builder.add("Max", found)

                x = np.random.default_rng(1).standard_normal((count, columns)).astype(np.float32)
                function, kernels = runner(graph_of(build, x=(F32, x.shape)), report.device, {"x": x})
                seconds = report.seconds(function) / number
                case = f"{name}, {activations} activations"
                if count == 1:
                    report.add(f"GEMV {case}", weight.nbytes / seconds / 1e9, "GB/s", "copy", note=kernels)
                else:
                    rate = 2 * count * rows * columns / seconds / 1e12
                    report.add(f"GEMM {case}, {count} rows", rate, "TFLOP/s", "bf16", note=kernels)


def language_file(path, kind, vocabulary, width, inner, layers, heads, groups):
    """Write a llama GGUF file with quantized weights; return their number."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(1e-5)
    matrices = {"token_embd": (vocabulary, width), "output": (vocabulary, width)}
    small = width // heads * groups
    for layer in range(layers):
        shapes = {
            "attn_q": (width, width), "attn_k": (small, width), "attn_v": (small, width), "attn_output": (width, width),
            "ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner),
        }  # fmt: skip
        matrices |= {f"blk.{layer}.{name}": shape for name, shape in shapes.items()}
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    blocks = {}
    for name, shape in matrices.items():
        if shape not in blocks:
            blocks[shape] = np.frombuffer(repeated_blocks(kind, *shape).raw(), np.uint8).reshape(shape[0], -1)
        writer.add_tensor(f"{name}.weight", blocks[shape], raw_dtype=gguf.GGMLQuantizationType[kind.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sum(rows * columns for rows, columns in matrices.values())


def language(report):
    """Prompts and generated tokens of a llama; a token reads all weights but the embedding."""
    from candle_convert.convert.load.load_model import load
    from numba import cuda

    kinds, vocabulary, width, *rest = report.size.language
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            weights = language_file(path, kind, vocabulary, width, *rest)
            read = path.stat().st_size * (1 - vocabulary * width / weights)
            model = load(path, device=report.device)
            prompt = [index % vocabulary for index in range(report.size.prompt)]
            seconds = report.seconds(lambda model=model, prompt=prompt: model.advance([prompt], model.start(1)))
            work = 2 * (weights - vocabulary * width) * len(prompt) / seconds / 1e12
            name, note = f"llama {weights / 1e9:.2f}B {kind}", f"{len(prompt) / seconds:.0f} tokens/s"
            report.add(f"{name}: prompt of {len(prompt)} tokens", work, "TFLOP/s", "bf16", note=note)
            cache = model.start(1)
            for _ in range(2):
                model.advance([prompt[:1]], cache)
            cuda.synchronize()
            start = time.perf_counter()
            for _ in range(report.size.generate):
                model.advance([prompt[:1]], cache)
            each = (time.perf_counter() - start) / report.size.generate
            replays = [runner.replays for session in model._sessions.values() for runner in session.program.runners]
            captured, replayed = (sum(getattr(item, count) for item in replays) for count in ("captured", "replayed"))
            note = f"{1 / each:.1f} tokens/s; graphs captured {captured}, replayed {replayed}"
            report.add(f"{name}: generation", read / each / 1e9, "GB/s", "copy", note=note)


def encoder(report):
    """Transformer encoder in f16, against torch.compile."""
    from candle_convert.runtime.tensor.dtype import F16

    layers, width, heads, inner, length = report.size.encoder
    rng = np.random.default_rng(0)

    def build(builder, x):
        def linear(x, *shape):
            weight = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float16)
            return builder.add("MatMul", [x, builder.constant(weight)])

        def norm(x):
            scale, bias = np.ones(width, np.float16), np.zeros(width, np.float16)
            return builder.add("LayerNormalization", [x, builder.constant(scale), builder.constant(bias)])

        for _ in range(layers):
            q, k, v = (linear(x, width, width) for _ in range(3))
            context = builder.add("Attention", [q, k, v], {"q_num_heads": heads, "kv_num_heads": heads})
            x = norm(builder.add("Add", [x, linear(context, width, width)]))
            hidden = builder.add("Gelu", [linear(x, width, inner)])
            x = norm(builder.add("Add", [x, linear(hidden, inner, width)]))
        return x

    x = rng.standard_normal((1, length, width)).astype(np.float16)
    function, _ = runner(graph_of(build, x=(F16, x.shape)), report.device, {"x": x})
    torch, other = with_cuda("torch"), None
    if torch is not None:
        options = {"activation": "gelu", "batch_first": True, "dtype": torch.float16, "device": report.device}
        layer = torch.nn.TransformerEncoderLayer(width, heads, inner, **options)
        compiled = torch.compile(torch.nn.TransformerEncoder(layer, layers).eval())
        tokens = torch.from_numpy(x).to(report.device)
        with torch.inference_mode():
            other = ("torch.compile", 1e3 * report.seconds(lambda: compiled(tokens)))
    name = f"encoder, {layers} layers of {width}, {length} tokens, f16"
    report.add(name, 1e3 * report.seconds(function), "ms", other=other)


def networks(report, paths):
    """Latency of ONNX models, inputs and outputs on the host."""
    import candle_convert as cc
    from candle_convert.convert.run.feeds import feeds
    from candle_convert.runtime.cuda.execute.placement_report import placement_of
    from candle_convert.runtime.session import Session

    onnxruntime = with_cuda("onnxruntime")
    for path in paths:
        graph = cc.open(path)
        inputs, _ = feeds(graph, [])
        session, other = Session(graph, device=report.device), None
        seconds = report.seconds(lambda session=session, inputs=inputs: session.run(None, inputs))
        if onnxruntime is not None:
            peer = onnxruntime.InferenceSession(str(path), providers=["CUDAExecutionProvider"])
            peer_seconds = report.seconds(lambda peer=peer, inputs=inputs: peer.run(None, inputs))
            other = ("onnxruntime-gpu", 1e3 * peer_seconds)
        placement = placement_of(session.program)
        note = f"{placement.launches} launches, {sum(placement.host.values())} nodes on the CPU"
        report.add(Path(path).stem, 1e3 * seconds, "ms", other=other, note=note)


def encoders(report):
    """GB/s of f32 that block encoders read, copies to the GPU and back included, with a thread for each lane."""
    from concurrent.futures import ThreadPoolExecutor

    from candle_convert.ops.quants.cuda.device_encoder import on_device
    from candle_convert.ops.quants.cuda.stream_lanes import Lanes
    from candle_convert.runtime.tensor.block_codec import block_type

    rows = np.random.default_rng(0).standard_normal(report.size.encoded, np.float32)
    lanes = Lanes(report.device)
    with ThreadPoolExecutor(lanes.count) as pool:
        for name in report.size.types:
            codec = on_device(lanes)(block_type(name))
            importance = np.ones(rows.shape[1] if codec.needs_importance else 0, np.float32)
            out = np.empty((len(rows), codec.dtype.nbytes(rows.shape[1])), np.uint8)
            step = max(1, codec.encoder.slice // rows.shape[1])

            def encode(start, codec=codec, importance=importance, out=out, step=step):
                codec.encoder(rows, importance, out, start, min(start + step, len(rows)))

            starts = range(0, len(rows), step)
            seconds = report.seconds(lambda encode=encode, starts=starts: list(pool.map(encode, starts)))
            report.add(f"encoder of {name}", rows.nbytes / seconds / 1e9, "GB/s")


def line_of(row):
    """A row of the table, as Markdown."""
    share = "" if row["share"] is None else f"{100 * row['share']:.0f}% of {row['of']}"
    other = "" if row["other"] is None else f"{row['other']['name']} {row['other']['value']:.4g}"
    return f"| {row['what']} | {row['value']:.4g} {row['unit']} | {share} | {other} | {row['note']} |"


def small_model(folder):
    """Write a network small enough for the simulator."""
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "small", [x], [y])
    path = Path(folder) / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return [path]


PARTS = {part.__name__: part for part in (copies, products, quantized, language, encoder, networks, encoders)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--device", default="cuda:0", help="device to measure")
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each case")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated parts; default: all")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, for the simulator")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    arguments = parser.parse_args()
    from candle_convert.runtime.cuda.device.device import cuda_support, device_index, use_device

    found = cuda_support()
    if not found.devices and not (arguments.tiny and found.simulated):
        reason = found.why or "NUMBA_ENABLE_CUDASIM is set, which simulates a GPU"
        print(f"Nothing was measured: {reason}. {found.hint or ''}".strip())
        return 1
    import onnx

    size = TINY if arguments.tiny else Size()
    report = Report(arguments.device, 1 if arguments.tiny else arguments.runs, size, arguments.json)
    if not arguments.json:
        print(f"{', '.join(device['name'] for device in found.devices) or 'simulated'}, numba-cuda {found.package}\n")
        print("| case | candle-convert | share | peer | notes |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder, use_device(device_index(arguments.device)):
        light = sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))
        paths = arguments.models or (small_model(folder) if arguments.tiny else light)
        for name, part in PARTS.items():
            if name in arguments.parts.split(","):
                part(report, paths) if part is networks else part(report)
    if arguments.json:
        print(json.dumps({"devices": found.devices, "numba-cuda": found.package, "rows": report.rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
