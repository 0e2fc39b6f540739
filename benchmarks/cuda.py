"""A card's work in one command: copies, products, quantized rows and matrices, a language model of a billion weights, networks, encoders.

    python benchmarks/cuda.py [MODEL.onnx ...] [--device cuda:0] [--runs 20] [--json]

Prints the table for BENCHMARKS.md. Without models, the light ones of the standard's suite that `onnx` brings. onnxruntime-gpu and torch are
measured beside ours where they are installed and see the card. Times are medians of runs, the card idle before and after. Quantized rows and
generated tokens are compared with the measured rate of copies on the card, quantized matrices and prompts with that of bf16 products. Where
there is no card nothing is measured, which is said in one line, and the exit status is 1. `--tiny` runs every part once on sizes that the
simulator (NUMBA_ENABLE_CUDASIM=1) computes, whose times mean nothing.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]  # this file's name hides numba's

import numpy as np  # noqa: E402

INTEGERS = ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "iq4_xs")


@dataclass
class Size:
    """How large everything is."""

    copied: int = 256 << 20
    side: int = 8192
    weight: tuple = (11008, 4096)
    rows: int = 512
    types: tuple = ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "q2_k", "q3_k", "iq4_xs", "mxfp4", "iq2_xs")
    language: tuple = (("q8_0", "q4_k"), 32000, 2048, 5632, 22, 32, 4)
    """Types, vocabulary, width, hidden units, layers, heads, heads of keys: 1.1 billion weights."""
    prompt: int = 512
    generate: int = 128
    encoder: tuple = (12, 768, 12, 3072, 128)
    """Layers, width, heads, hidden units, length: BERT base."""
    encoded: tuple = (4096, 4096)


TINY = Size(1 << 10, 8, (2, 32), 5, ("q8_0",), (("q8_0",), 8, 32, 32, 1, 1, 1), 2, 2, (1, 4, 1, 4, 2), (2, 32))


@dataclass
class Report:
    """Rows of the table; `references` are rates that others are compared with, by unit."""

    device: str
    runs: int
    size: Size
    rows: list = field(default_factory=list)
    references: dict = field(default_factory=dict)

    def add(self, what, value, unit, against=None, other=None, note=""):
        """One row; `against` names a reference that the value is a share of, `other` is (a library's name, its value)."""
        reference = self.references.get(against)
        self.rows.append({
            "what": what, "value": float(value), "unit": unit, "share": None if not reference else float(value) / reference, "of": against or "",
            "other": other and {"name": other[0], "value": float(other[1])}, "note": note,
        })

    def seconds(self, function):
        """The median time of a call."""
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
    """A graph with inputs of these dtypes and shapes, whose outputs `build(builder, *inputs)` makes."""
    from candle_convert.runtime.build import Builder
    from candle_convert.runtime.graph import Graph, Value

    graph = Graph()
    graph.inputs = [Value(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    graph.values = {value.name: value for value in graph.inputs}
    graph.outputs = [build(Builder(graph), *graph.inputs)]
    return graph


def on_device(array):
    from candle_convert.runtime.cuda.array import DeviceArray
    from numba import cuda

    if array.dtype.name == "bfloat16":
        held = DeviceArray.taken(cuda.to_device(array.view(np.uint16)))
        return DeviceArray(array.dtype, array.shape, held.bytes, held)
    return DeviceArray.taken(cuda.to_device(array))


def runner(graph, device, arrays, **options):
    """What runs a graph on arrays that are on the card, and the names of its kernels."""
    from candle_convert.runtime.cuda.kernel import Launch
    from candle_convert.runtime.session import Session

    session = Session(graph, device=device, **options)
    fed = {name: on_device(array) for name, array in arrays.items()}
    session.run_on_device(fed)
    kernels = sorted({step.kernel.title for step in session.program.plans[-1].steps if isinstance(step, Launch)})
    return lambda: session.run_on_device(fed), ", ".join(kernels)


def with_cuda(name):
    """A library that is installed and sees a card, None otherwise."""
    try:
        module = __import__(name)
    except ImportError:
        return None
    if name == "torch":
        return module if module.cuda.is_available() else None
    return module if "CUDAExecutionProvider" in module.get_available_providers() else None


def copies(report):
    from numba import cuda

    count = report.size.copied
    host, here, there = cuda.pinned_array(count, np.uint8), cuda.device_array(count, np.uint8), cuda.device_array(count, np.uint8)
    ways = {
        "copy to the card": (lambda: here.copy_to_device(host), 1), "copy to the host": (lambda: here.copy_to_host(host), 1),
        "copy on the card, read and written": (lambda: there.copy_to_device(here), 2),
    }
    for name, (function, times) in ways.items():
        rate = times * count / report.seconds(function) / 1e9
        report.add(name, rate, "GB/s")
    report.references["copy"] = rate


def products(report):
    """Square matrices, one of them a weight."""
    from candle_convert.runtime.dtype import DTYPES

    side, torch = report.size.side, with_cuda("torch")
    work = 2 * side**3 / 1e12
    for name in ("f32", "f16", "bf16"):
        dtype = DTYPES[name].as_numpy()
        weight = np.random.default_rng(0).standard_normal((side, side), np.float32).astype(dtype)
        graph = graph_of(lambda build, x, weight=weight: build.add("MatMul", [x, build.constant(weight)]), x=(DTYPES[name], (side, side)))
        function, kernels = runner(graph, report.device, {"x": np.ones((side, side), dtype)})
        rate = work / report.seconds(function)
        other = None
        if torch is not None:
            one = torch.ones(side, side, device=report.device, dtype={"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name])
            other = ("torch", work / report.seconds(lambda one=one: one @ one))
        report.add(f"product of {side} x {side}, {name}", rate, "TFLOP/s", other=other, note=kernels)
        report.references[name] = max(rate, other[1] if other else 0)


def repeated_blocks(name, rows, columns):
    """A weight of blocks: some random rows again and again."""
    from candle_convert.ops.quants import codec_of
    from candle_convert.runtime import quant
    from candle_convert.runtime.storage import Held
    from candle_convert.runtime.tensor import Tensor

    dtype = quant.block_type(name)
    few = np.random.default_rng(0).standard_normal((min(rows, 16), columns)).astype(np.float32) / 16
    made = np.asarray(quant.encoded(codec_of(dtype), few)).reshape(len(few), -1)
    whole = np.tile(made, (-(-rows // len(few)), 1))[:rows]
    return Tensor(dtype, (rows, columns), Held(whole.tobytes()))


def quantized(report):
    """One row, as in decoding a token, and many, as in a prompt, by a weight of blocks that is on the card."""
    from candle_convert.runtime.dtype import F32

    rows, columns = report.size.weight
    for name in report.size.types:
        weight = repeated_blocks(name, rows, columns)
        for activations in ("f32", "q8") if name in INTEGERS else ("f32",):
            for count in (1, report.size.rows):
                def build(b, x, weight=weight, activations=activations):
                    return b.add("Linear", [x, b.weight(weight)], {"activations": activations}, domain="candle")

                x = np.random.default_rng(1).standard_normal((count, columns)).astype(np.float32)
                function, kernels = runner(graph_of(build, x=(F32, x.shape)), report.device, {"x": x})
                taken = report.seconds(function)
                if count == 1:
                    report.add(f"a row ({activations}) by {name}", weight.nbytes / taken / 1e9, "GB/s", "copy", note=kernels)
                else:
                    report.add(f"{count} rows ({activations}) by {name}", 2 * count * rows * columns / taken / 1e12, "TFLOP/s", "bf16", note=kernels)


def language_file(path, kind, vocabulary, width, inner, layers, heads, groups):
    """A GGUF file of a Llama with such weights; the number of its weights."""
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
        rows = {"attn_q": (width, width), "attn_k": (small, width), "attn_v": (small, width), "attn_output": (width, width),
                "ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}  # fmt: skip
        matrices |= {f"blk.{layer}.{name}": shape for name, shape in rows.items()}
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
    """Prompts and generated tokens; the weights that a token reads are those of the file but for the embedding."""
    from candle_convert.convert.modelling import load
    from numba import cuda

    kinds, vocabulary, width, *rest = report.size.language
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            weights = language_file(path, kind, vocabulary, width, *rest)
            read = path.stat().st_size * (1 - vocabulary * width / weights)
            model = load(path, device=report.device)
            prompt = [index % vocabulary for index in range(report.size.prompt)]
            taken = report.seconds(lambda model=model, prompt=prompt: model.advance([prompt], model.start(1)))
            work = 2 * (weights - vocabulary * width) * len(prompt) / taken / 1e12
            name = f"Llama of {weights / 1e9:.2f} billion weights, {kind}"
            report.add(f"{name}: prompt of {len(prompt)} tokens", work, "TFLOP/s", "bf16", note=f"{len(prompt) / taken:.0f} tokens/s")
            cache = model.start(1)
            for _ in range(2):
                model.advance([prompt[:1]], cache)
            cuda.synchronize()
            start = time.perf_counter()
            for _ in range(report.size.generate):
                model.advance([prompt[:1]], cache)
            each = (time.perf_counter() - start) / report.size.generate
            replays = [runner.replays for session in model._sessions.values() for runner in session.program.runners]
            captured, replayed = (sum(getattr(item, name) for item in replays) for name in ("captured", "replayed"))
            note = f"{1 / each:.1f} tokens/s; graphs captured {captured}, replayed {replayed}"
            report.add(f"{name}: a token", read / each / 1e9, "GB/s", "copy", note=note)


def encoder(report):
    """A transformer's encoder in f16, against torch.compile."""
    from candle_convert.runtime.dtype import F16

    layers, width, heads, inner, length = report.size.encoder
    rng = np.random.default_rng(0)

    def build(b, x):
        def weight(*shape):
            return b.constant((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float16))

        def normal(x):
            return b.add("LayerNormalization", [x, b.constant(np.ones(width, np.float16)), b.constant(np.zeros(width, np.float16))])

        for _ in range(layers):
            q, k, v = (b.add("MatMul", [x, weight(width, width)]) for _ in range(3))
            seen = b.add("Attention", [q, k, v], {"q_num_heads": heads, "kv_num_heads": heads})
            x = normal(b.add("Add", [x, b.add("MatMul", [seen, weight(width, width)])]))
            x = normal(b.add("Add", [x, b.add("MatMul", [b.add("Gelu", [b.add("MatMul", [x, weight(width, inner)])]), weight(inner, width)])]))
        return x

    x = rng.standard_normal((1, length, width)).astype(np.float16)
    function, _ = runner(graph_of(build, x=(F16, x.shape)), report.device, {"x": x})
    torch, other = with_cuda("torch"), None
    if torch is not None:
        layer = torch.nn.TransformerEncoderLayer(width, heads, inner, activation="gelu", batch_first=True, dtype=torch.float16, device=report.device)
        compiled, given = torch.compile(torch.nn.TransformerEncoder(layer, layers).eval()), torch.from_numpy(x).to(report.device)
        with torch.inference_mode():
            other = ("torch.compile", 1e3 * report.seconds(lambda: compiled(given)))
    report.add(f"encoder of {layers} layers of {width}, {length} tokens, f16", 1e3 * report.seconds(function), "ms", other=other)


def networks(report, paths):
    """Each model's milliseconds, inputs and outputs on the host."""
    import candle_convert as cc
    from candle_convert.convert.running.feeds import feeds
    from candle_convert.runtime.cuda.report import placement_of
    from candle_convert.runtime.session import Session

    onnxruntime = with_cuda("onnxruntime")
    for path in paths:
        graph = cc.open(path)
        fed, _ = feeds(graph, [])
        session, other = Session(graph, device=report.device), None
        taken = report.seconds(lambda session=session, fed=fed: session.run(None, fed))
        if onnxruntime is not None:
            theirs = onnxruntime.InferenceSession(str(path), providers=["CUDAExecutionProvider"])
            other = ("onnxruntime-gpu", 1e3 * report.seconds(lambda theirs=theirs, fed=fed: theirs.run(None, fed)))
        placement = placement_of(session.program)
        note = f"{placement.launches} launches, {sum(placement.host.values())} nodes on the CPU"
        report.add(Path(path).stem, 1e3 * taken, "ms", other=other, note=note)


def encoders(report):
    """GB/s of f32 in which blocks are made, copies to the card and back included, slices in as many threads as there are lanes."""
    from concurrent.futures import ThreadPoolExecutor

    from candle_convert.ops.quants.device.codecs import on_device
    from candle_convert.ops.quants.device.lanes import Lanes
    from candle_convert.runtime.quant import block_type

    rows = np.random.default_rng(0).standard_normal(report.size.encoded, np.float32)
    lanes = Lanes(report.device)
    with ThreadPoolExecutor(lanes.count) as crew:
        for name in report.size.types:
            codec = on_device(lanes)(block_type(name))
            given = np.ones(rows.shape[1] if codec.needs_importance else 0, np.float32)
            out = np.empty((len(rows), codec.dtype.nbytes(rows.shape[1])), np.uint8)
            step = max(1, codec.encoder.slice // rows.shape[1])

            def encode(start, codec=codec, given=given, out=out, step=step):
                codec.encoder(rows, given, out, start, min(start + step, len(rows)))

            rate = rows.nbytes / report.seconds(lambda encode=encode, step=step: list(crew.map(encode, range(0, len(rows), step)))) / 1e9
            report.add(f"blocks of {name} made", rate, "GB/s")


def table(report):
    yield "| what | candle-convert | share | beside it | how |"
    yield "|---|---|---|---|---|"
    for row in report.rows:
        share = "" if row["share"] is None else f"{100 * row['share']:.0f}% of {row['of']}"
        other = "" if row["other"] is None else f"{row['other']['name']} {row['other']['value']:.4g}"
        yield f"| {row['what']} | {row['value']:.4g} {row['unit']} | {share} | {other} | {row['note']} |"


def small_model(folder):
    """A network that the simulator computes."""
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "small", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), Path(folder) / "small.onnx")
    return [Path(folder) / "small.onnx"]


PARTS = {part.__name__: part for part in (copies, products, quantized, language, encoder, networks, encoders)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    from candle_convert.runtime.cuda.machine import number_of, on, state

    found = state()
    if not found.devices and not (arguments.tiny and found.simulated):
        print(f"Nothing was measured: {found.why or 'NUMBA_ENABLE_CUDASIM is set, which simulates a card'}. {found.hint or ''}".strip())
        return 1
    import onnx

    report = Report(arguments.device, 1 if arguments.tiny else arguments.runs, TINY if arguments.tiny else Size())
    with tempfile.TemporaryDirectory() as folder, on(number_of(arguments.device)):
        light = sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))
        paths = arguments.models or (small_model(folder) if arguments.tiny else light)
        for name, part in PARTS.items():
            if name in arguments.parts.split(","):
                part(report, paths) if part is networks else part(report)
    if arguments.json:
        print(json.dumps({"devices": found.devices, "numba-cuda": found.package, "rows": report.rows}, indent=1))
        return 0
    print(f"{', '.join(device['name'] for device in found.devices) or 'simulated'}, numba-cuda {found.package}\n")
    print("\n".join(table(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
