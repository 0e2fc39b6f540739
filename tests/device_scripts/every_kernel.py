"""Compiles every device kernel that an example launches, for several compute capabilities, in slices.

    python every_kernel.py [--seconds 80] [--passed FILE]

A slice compiles what the file does not name yet, prints counts as one JSON object, and exits with 0 when all is done, 2
when some is left, 1 when something was wrong. A kernel is known by a digest of its text, the types of its arguments and
the sources that such texts call.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import time
from functools import cache
from pathlib import Path

import candle_convert.formats.containers.onnx.reader as onnx_graph
import candle_convert.runtime.cuda.device.mma as cuda_warp
import candle_convert.runtime.cuda.device.unfused_arithmetic as cuda_exact
import candle_convert.runtime.cuda.element.bits as cuda_bits
import candle_convert.runtime.cuda.element.block_quantized as cuda_coded
import candle_convert.runtime.cuda.element.element as cuda_element
import candle_convert.runtime.cuda.element.group_quantized as cuda_grouped
import candle_convert.runtime.cuda.element.scalar_simd as cuda_lane
import candle_convert.runtime.cuda.element.small_dtypes as cuda_narrow
import candle_convert.runtime.cuda.kernel.elementwise as cuda_zip
import numpy as np
from candle_convert.ops.quants.cuda import elements
from candle_convert.ops.quants.cuda.encode import READS, kernel_of, lane_encoder, mean_squares, widened
from candle_convert.runtime.cuda.execute.program import Program, describe_feed
from candle_convert.runtime.cuda.kernel.kernel import Launch, signature
from candle_convert.runtime.cuda.memory.host_weight import weights_of
from candle_convert.runtime.cuda.memory.pool import PoolShare, pool_of
from candle_convert.runtime.cuda.plan import kernel_api
from candle_convert.runtime.cuda.plan.planner import Planner
from candle_convert.runtime.ir.op import Example
from candle_convert.runtime.ir.opset_upgrade import upgrade
from candle_convert.runtime.ir.registry import operators
from candle_convert.runtime.passes.fuse.linear import FuseLinear
from candle_convert.runtime.region.region import Region
from candle_convert.runtime.tensor.block_codec import codecs
from candle_convert.tests.builders.paths import REPOSITORY, TESTS
from candle_convert.tests.builders.single_node import model
from candle_convert.tests.device_scripts.matmul_nbits import PRODUCTS, network
from candle_convert.tests.device_scripts.quantized_matmul import chosen, few, linear, taken, weight
from candle_convert.tests.device_scripts.small_floats import FED, kept

CHIPS = [(7, 5), (8, 0), (9, 0), (12, 1)]
"""Turing, Ampere, Hopper, and the newest that the toolkit knows."""
CALLED = (cuda_bits, cuda_coded, cuda_element, cuda_grouped, cuda_narrow, cuda_zip)
CALLED_BY_ENCODERS = (cuda_lane, cuda_exact, cuda_bits)
PLANNED_BY = (REPOSITORY / "ops", REPOSITORY / "runtime", TESTS / "builders", TESTS / "device_scripts")
ENCODED, MEANS = (
    ("int64", "int64", "float32*", "float32*", "float32*", "uint8*"),
    ("int64", "int64", "float32*", "float32*"),
)
LATTICE = ("int32*", "int32*", "int32*", "uint16*")
JOINED = re.compile(r"\bfma\.\S+|\b(?:add|sub|mul|div|sqrt)(?!\.rn\.f32)\.\S*f32|\S+\.ftz\S*")
"""What an encoder's machine code must not have, then its bytes are not the CPU's: products and sums in one, and
operations that the assembler may join (those that do not say how they round) or that are not exact."""


def sources():
    """What kernels come from: a name, and a function that gives (kernel, types of its arguments) pairs."""
    kernel_api.load_kernels()
    for operator in operators().values():
        if kernel_api.cpu_reason(operator) is None and operator.examples:
            yield f"operator {operator.domain} {operator.name}", lambda operator=operator: of_operator(operator)
    for name in elements():
        yield f"blocks {name}", lambda name=name: of_blocks(name)
    for name in ("int4", "uint2", "float4_e2m1fn"):
        yield f"packed {name}", lambda name=name: of_packed(name)
    yield "groups of few bits", of_groups
    yield "experts", of_experts
    for codec in codecs().values():
        if codec.encoder is not None:
            yield f"encoder {codec.dtype.name}", lambda codec=codec: of_encoder(codec)
    yield "what encoders read", of_read


def of_operator(operator):
    found = {}
    for index, example in enumerate(operator.examples):
        collect(operator, example, found)
        if index == 0 and operator.scalar is not None:
            collect(operator, halved(example, "f16"), found)
            collect(operator, halved(example, "bf16"), found)
    return list(found.values())


def of_blocks(name):
    found = {}
    for form, decided in ((linear, ((1, "f32"), (8, "f32"), (2, "q8"), (8, "q8"))), (taken, ((2, "f32"),))):
        for rows, activations in decided:
            graph = form(few(name)[0])
            FuseLinear(activations).run(graph)
            shape = (rows, *graph.inputs[0].shape[1:])
            gather(graph, {graph.inputs[0].name: np.zeros(shape, graph.inputs[0].dtype.as_numpy())}, found)
    return list(found.values())


def of_packed(name):
    found = {}
    gather(kept(name), FED, found)
    return list(found.values())


def of_groups():
    found = {}
    for *case, _ in PRODUCTS:
        gather(*network(*case), found)
    return list(found.values())


def of_experts():
    found = {}
    gather(
        chosen(weight("q4_k", (3, 4, 256))[0]),
        {"x": np.zeros((2, 256), np.float32), "ids": np.zeros((2, 2), np.int64)},
        found,
    )
    return list(found.values())


def of_encoder(codec):
    ways = [lane_encoder(codec, weighted) for weighted in (False, True)]
    found = [
        (kernel_of(codec, weighted), (*ENCODED, *(LATTICE if way.lattice else ())))
        for weighted, way in enumerate(ways)
        if way.weighted >= weighted >= codec.needs_importance
    ]
    return [*found, (mean_squares(), MEANS)] if any(way.means for way in ways) else found


def of_read():
    return [(widened(kind), ("int64", f"{dtype.name}*", "float32*", "int32*")) for kind, (dtype, _) in READS.items()]


def halved(example, name):
    """An example whose made-up floats are of half precision."""
    inputs = tuple(item.replace("f32", name) if isinstance(item, str) else item for item in example.inputs)
    return Example(inputs, example.attributes, example.outputs)


def collect(operator, example, found):
    made, feeds = model(operator, example)
    gather(onnx_graph.graph_of(made), feeds, found)


def gather(graph, feeds, found):
    """The kernels of a plan for these inputs."""
    upgrade(graph)
    region = Region(graph.nodes, graph.inputs, graph.outputs, weights_of(graph), {})
    program = Program(region, PoolShare(pool_of(0)))
    values = [(feeds.get(value.name), decides) for value, decides in zip(graph.inputs, program.decides, strict=True)]
    plan = Planner(region, [describe_feed(*pair) for pair in values]).make_plan()
    for step in plan.steps:
        if isinstance(step, Launch):
            key = signature(step.arguments)
            found.setdefault((step.kernel.function.__module__, key), (step.kernel, key))


def compiled(kernel, kinds, chips):
    """Its assembly for each compute capability; all but the last step is done once."""
    from numba.cuda import compiler, types

    arguments = tuple(
        types.Array(getattr(types, name[:-1]), 1, "C") if name.endswith("*") else getattr(types, name) for name in kinds
    )
    library, _ = compiler._compile_pyfunc_with_fixup(
        kernel.function,
        arguments,
        debug=None,
        lineinfo=False,
        device=False,
        fastmath=False,
        cc=chips[0],
        opt=None,
        abi="numba",
        abi_info=None,
        forceinline=False,
        launch_bounds=None,
        lto=False,
    )
    return ["".join(library.get_asm_strs(cc=cc)) for cc in chips]


def assembled(text, cc):
    """What the assembler says of a kernel, which fails where one asks for more shared memory than there is; needs no
    card."""
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(2, [f"-arch=sm_{cc[0]}{cc[1]}", "-verbose"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text.encode(), len(text), "kernel")
        nvjitlink.complete(handle)
        said = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, said)
        assert nvjitlink.get_linked_cubin_size(handle) > 0
    finally:
        nvjitlink.destroy(handle)
    return said.decode()


def wrong(kernel, kinds, encoder, chips=tuple(CHIPS)):
    """What is wrong with a kernel's machine code, None when nothing is."""
    from cuda.bindings import nvjitlink

    fitting = [cc for cc in chips if cc >= kernel.least]
    for cc, text in zip(fitting, compiled(kernel, kinds, fitting), strict=True):
        if f".target sm_{cc[0]}{cc[1]}" not in text or ".entry" not in text:
            return f"{kernel} {kinds}: no code for {cc}"
        joined = sorted(set(JOINED.findall(text))) if encoder else []
        if joined:
            return f"{kernel} for {cc}: {joined}"
        try:
            assembled(text, cc)
        except nvjitlink.nvJitLinkError as error:
            return f"{kernel} {kinds} for {cc}: {error}"
    return None


@cache
def toolkit(encoder=False, warp=True):
    """A digest of what turns texts into machine code: numba-cuda, and the sources that texts call; encoders' call
    others, many none of a warp."""
    called = CALLED_BY_ENCODERS if encoder else (*CALLED, cuda_warp) if warp else CALLED
    parts = [
        importlib.metadata.version("numba-cuda"),
        repr(CHIPS),
        *(Path(module.__file__).read_text() for module in called),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def planners():
    """A digest of all that decides which kernels there are."""
    paths = sorted([path for folder in PLANNED_BY for path in folder.rglob("*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def fingerprint(kernel, kinds, encoder):
    text = Path(kernel.function.__code__.co_filename).read_text()
    warp = "warp" in text or "run_of(" in text.replace("import decoder, run_of", "")
    return hashlib.sha256(f"assembled {toolkit(encoder, warp)} {text} {kinds}".encode()).hexdigest()[:24]


def swept(passed, seconds, report=lambda row: None):
    """Compile what is left; counts, and whether all is done."""
    known = set(passed.read_text().split("\n")) if passed.exists() else set()
    end = time.monotonic() + seconds
    counts = {"sources": 0, "kernels": 0, "new": 0, "left": 0, "wrong": []}
    with open(passed, "a") as file:
        for name, kernels_of in sources():
            encoder = name.startswith("encoder")
            mark = hashlib.sha256(f"{planners()} {toolkit(encoder)} {name}".encode()).hexdigest()[:24]
            counts["sources"] += 1
            done = next((line for line in known if line.startswith(f"{mark} ")), None)
            if done is not None:
                counts["kernels"] += int(done.split()[1])
                continue
            if time.monotonic() > end:
                counts["left"] += 1
                continue
            pairs, complete = kernels_of(), True
            for kernel, kinds in pairs:
                key = fingerprint(kernel, kinds, encoder)
                if key in known:
                    continue
                if time.monotonic() > end:
                    complete = False
                    break
                why = wrong(kernel, kinds, encoder)
                if why is not None:
                    counts["wrong"].append(f"{name}: {why}")
                    complete = False
                    continue
                counts["new"] += 1
                known.add(key)
                file.write(f"{key}\n")
                file.flush()
            if complete:
                counts["kernels"] += len(pairs)
                file.write(f"{mark} {len(pairs)} {name}\n")
                file.flush()
            else:
                counts["left"] += 1
    return counts


def cache_file():
    """Where what has passed is kept between runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "candle-convert"
    base.mkdir(parents=True, exist_ok=True)
    return base / "ptx-passed.txt"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--passed", type=Path, default=None)
    arguments = parser.parse_args()
    counts = swept(arguments.passed or cache_file(), arguments.seconds)
    print(json.dumps(counts))
    return 1 if counts["wrong"] else 2 if counts["left"] else 0


if __name__ == "__main__":
    sys.exit(main())
