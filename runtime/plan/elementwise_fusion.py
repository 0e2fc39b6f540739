"""Element-wise fusion: generates one kernel with one loop for a chain of scalar operators.

A generated module depends on nothing but the chain's structure, the dtypes and how operands are laid out, and its
file's name is a digest of its text, so that Numba's disk cache finds the machine code in a new process. Sizes, strides
and attributes are arguments.

Arguments: elements of a row, rows, dims outside of the rows; the output and the operands; element strides of the
operands within a row; attributes; lengths of the outer dims, last one first; for each operand its strides along these.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import math
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.process_cache import PROCESS, owned, process_cache
from ..base.sha256 import sha256
from ..ir import registry
from ..jit import address, code_cache, range_kernel, source_digest
from ..jit import kernel_arguments as arguments
from ..simd import branchless_math, element
from . import rows
from .kernel_api import Apply, Buffer, Chain, Launch, load_planners

POINTERS = {
    "float32": "f32",
    "float64": "f64",
    "float16": "u16",
    "bfloat16": "u16",
    "bool": "u8",
    **{f"{kind}int{width}": f"{kind or 'i'}{width}" for kind in ("", "u") for width in (8, 16, 32, 64)},
}
"""Dtype -> the pointer type that reads and writes its elements."""
NARROW = {"float16": ("f16_to_f32", "f32_to_f16"), "bfloat16": ("bf16_to_f32", "f32_to_bf16")}
"""Narrow dtype -> the functions that widen and narrow its elements."""
SPECIALIZED = 4096
"""Elements from which a loop of its own for the operands' layout, and for the whole chain, pays."""
LONGEST = 24
"""Operators in one kernel."""
PARAMETERS = (
    "count: int, rows: int, outer: int, y: Address, inputs: Words, strides: Words, attributes: Words, lengths: Words, "
    "outer_strides: Words,"
    " part: int, parts: int"
)

FUNCTIONS: dict[str, Callable[..., Any]] = owned({}, PROCESS)
"""Scalar functions by the key that generated modules name them by, but for those of operators, whose keys are
``domain.name``."""


def launched(chain: Chain, parts: Callable[[int, float], int]) -> Launch:
    """The launch of a chain's kernel."""
    places: dict[tuple[int, int, tuple[int, ...], np.dtype[Any]], int] = {}
    indices = [
        places.setdefault((id(item.allocation), item.offset, item.shape, item.dtype), len(places))
        for item in chain.operands
    ]
    operands = [chain.operands[indices.index(index)] for index in range(len(places))]
    lengths, strides = collapsed(chain.output.shape, [operand.shape for operand in operands])
    inner = lengths.pop() if lengths else 1
    within = [stride.pop() if stride else 0 for stride in strides]
    flat = not lengths
    if chain.output.count >= SPECIALIZED:
        layout = "".join("s" if step == 0 else "c" if step == 1 else "g" for step in within)
    else:
        layout, flat = "g" * len(operands), False
    shapes = (
        (
            *(step.key, step.compute, step.result, len(step.attributes), step.earlier),
            *(item and item.dtype for item in step.operands),
        )
        for step in chain.steps
    )
    structure = (tuple(shapes), tuple(indices), layout, flat, chain.output.dtype)
    compiled = _KERNELS.get(structure)
    if compiled is None:
        compiled = _KERNELS[structure] = module_kernel(
            "elementwise", source(chain.steps, operands, indices, layout, flat, chain.output.dtype)
        )
    count, rows = (inner, 1) if flat else (inner, math.prod(lengths))
    limit = max(1, inner // 1024) if flat else rows
    made = chain.output
    same = [item for item in operands if (item.shape, item.dtype) == (made.shape, made.dtype)]
    alone = [item for item in same if sum(item.allocation is other.allocation for other in operands) == 1]
    return Launch(
        compiled,
        parts(limit, chain.output.count * 1.5 * len(chain.steps)),
        count=count,
        rows=rows,
        outer=len(lengths),
        y=chain.output,
        inputs=operands,
        strides=within,
        attributes=[float(item) for step in chain.steps for item in step.attributes],
        lengths=lengths[::-1],
        outer_strides=[step for stride in strides for step in stride[::-1]],
    ).changed(in_place=[(item, made) for item in alone])


def scalar_function(key: str) -> Callable[..., Any]:
    """The function of a key."""
    if key not in FUNCTIONS and "." not in key:
        load_planners()
    if key not in FUNCTIONS:
        domain, _, name = key.rpartition(".")
        operator = registry.operator(name, domain)
        assert operator is not None
        assert operator.scalar is not None
        FUNCTIONS[key] = operator.scalar
    return FUNCTIONS[key]


_KERNELS: dict[Any, Any] = owned({})
"""Kernels by what their text depends on."""


def broadcast_strides(shape: Sequence[int], box: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index to the next of a contiguous array along each axis of a box that it is broadcast to."""
    strides, step = [], 1
    for length in reversed((1,) * (len(box) - len(shape)) + tuple(shape)):
        strides.append(0 if length == 1 else step)
        step *= length
    return tuple(reversed(strides))


def merged(lengths: Sequence[int], columns: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Lengths and strides without axes of length one, with adjacent axes merged where all operands allow it."""
    kept: list[int] = []
    found: list[list[int]] = [[] for _ in columns]
    for axis, length in enumerate(lengths):
        if length == 1:
            continue
        if kept and all(column[-1] == strides[axis] * length for column, strides in zip(found, columns, strict=True)):
            kept[-1] *= length
            for column, strides in zip(found, columns, strict=True):
                column[-1] = strides[axis]
            continue
        kept.append(length)
        for column, strides in zip(found, columns, strict=True):
            column.append(strides[axis])
    return kept, found


def collapsed(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Lengths of the output's dims and each operand's element strides (0 where it broadcasts), neighbours merged where
    all operands allow it."""
    return merged(shape, [broadcast_strides(operand, shape) for operand in operands])


def source(
    steps: Sequence[Apply],
    operands: Sequence[Buffer],
    indices: Sequence[int],
    layout: str,
    flat: bool,
    result: np.dtype[Any],
) -> str:
    """Text of the module that computes a chain.

    Args:
        operands: the buffers that it reads, each once; indices: which of them each operand of the steps is.
        layout: one letter for each: contiguous, scalar or general strides.
    """
    count = len(operands)
    pad = "    " if flat else "        "
    lines = [f'"""Generated from {", ".join(step.key for step in steps)}."""', "from __future__ import annotations"]
    lines += [
        f"from {arguments.__name__} import Address, Words",
        f"from {element.__name__} import bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16",
    ]
    lines += [f"from {__name__} import element_function", f"from {range_kernel.__name__} import range_kernel"]
    lines += [f"from {address.__name__} import *", "import numpy as np"]
    for index, step in enumerate(steps):
        dtype_name = str(step.compute)
        lines.append(f"# {code_digest(scalar_function(step.key))}")
        lines.append(f"function{index} = element_function({step.key!r}, {dtype_name!r})")
    lines += ["", "@range_kernel(unroll=False)", f"def compute({PARAMETERS}):", f"    y = {POINTERS[str(result)]}(y)"]
    lines += [f"    x{k} = {POINTERS[str(operand.dtype)]}(inputs[{k}])" for k, operand in enumerate(operands)]
    lines += [f"    s{k} = strides[{k}]" for k in range(count) if layout[k] == "g"]
    scalars = [
        (step.compute, f"a{index}_{position}")
        for index, step in enumerate(steps)
        for position in range(len(step.attributes))
    ]
    for position, (dtype, name) in enumerate(scalars):
        cast = "np.float32" if dtype == np.float32 else "np.float64" if dtype.kind == "f" else "np.int64"
        lines.append(f"    {name} = {cast}(number(attributes[{position}]))")
    if flat:
        lines.append("    first, last = count * part // parts, count * (part + 1) // parts")
        lines += [f"    o{k} = 0" for k in range(count)]
        lines += _scalars(operands, layout, "    ")
        lines.append("    for j in range(first, last):")
    else:
        lines.append("    for row in range(rows * part // parts, rows * (part + 1) // parts):")
        lines += [f"        o{k} = 0" for k in range(count)]
        lines.append("        rest = row")
        lines.append("        for axis in range(outer):")
        lines.append("            length = lengths[axis]")
        lines.append("            index = rest % length")
        lines.append("            rest = rest // length")
        lines += [f"            o{k} += index * outer_strides[outer * {k} + axis]" for k in range(count)]
        lines.append("        base = row * count")
        lines += _scalars(operands, layout, "        ")
        lines.append("        for j in range(count):")
    lines += _reads(operands, layout, pad + "    ")
    lines += _body(steps, indices, pad + "    ", result)
    return "\n".join(lines) + "\n"


def _scalars(operands: Sequence[Buffer], layout: str, pad: str) -> list[str]:
    return [f"{pad}v{k} = {_read(operand, f'x{k}[o{k}]')}" for k, operand in enumerate(operands) if layout[k] == "s"]


def _read(operand: Buffer, element: str) -> str:
    name = operand.dtype.name
    return f"{element} != 0" if name == "bool" else f"{NARROW[name][0]}({element})" if name in NARROW else element


def _reads(operands: Sequence[Buffer], layout: str, pad: str) -> list[str]:
    places = {"c": "x{0}[o{0} + j]", "g": "x{0}[o{0} + j * s{0}]"}
    return [
        f"{pad}v{k} = {_read(operand, places[layout[k]].format(k))}"
        for k, operand in enumerate(operands)
        if layout[k] != "s"
    ]


def _body(steps: Sequence[Apply], indices: Sequence[int], pad: str, result: np.dtype[Any]) -> list[str]:
    lines, rest = [], iter(indices)
    for index, step in enumerate(steps):
        earlier = iter(step.earlier or (index - 1,) * len(step.operands))
        arguments = [f"t{next(earlier)}" if operand is None else f"v{next(rest)}" for operand in step.operands]
        arguments += [f"a{index}_{position}" for position in range(len(step.attributes))]
        call = f"function{index}({', '.join(arguments)})"
        lines.append(f"{pad}t{index} = {_converted(call, step.result)}")
    target = "y[j]" if len(pad) == 8 else "y[base + j]"
    last = f"t{len(steps) - 1}"
    lines.append(f"{pad}{target} = " + (f"{NARROW[result.name][1]}({last})" if result.name in NARROW else last))
    return lines


def _converted(call: str, dtype: np.dtype[Any]) -> str:
    if dtype == np.bool_:
        return f"({call}) != 0"
    if dtype.name in NARROW:
        widen, narrow = NARROW[dtype.name]
        return f"{widen}({narrow}(np.float32({call})))"
    return f"np.{dtype.name}({call})"


@process_cache
def element_function(key: str, dtype: str, storage: str = "") -> Callable[..., Any]:
    """The scalar function of a key, its numbers in `dtype` and, for float32, `math` as in `branchless_math`; `stored`
    rounds to dtype `storage` if that is f16 or bf16."""
    function = scalar_function(key)
    code, single = function.__code__, dtype == "float32"
    names: dict[str, Any] = {"__name__": function.__module__, "__builtins__": __builtins__}
    for name, item in function.__globals__.items():
        if name not in code.co_names:
            continue
        if item is rows.stored and storage in NARROW:
            item = _rounded(storage)
        elif single:
            item = branchless_math if item is math else np.float32(item) if type(item) in (int, float) else item
        names[name] = item
    if single:
        code = code.replace(
            co_consts=tuple(np.float32(item) if type(item) in (int, float) else item for item in code.co_consts)
        )
    return range_kernel.inlined(types.FunctionType(code, names, function.__name__, function.__defaults__))


@process_cache
def _rounded(storage: str) -> Callable[..., Any]:
    widen, narrow = (getattr(element, name) for name in NARROW[storage])

    @range_kernel.inlined
    def rounded(value: Any) -> Any:
        return widen(narrow(np.float32(value)))

    return rounded


@process_cache
def code_digest(function: Callable[..., Any]) -> str:
    """Digest of the code of a function, of the numbers that it names and of the functions that it calls."""
    code = function.__code__
    used = [(name, function.__globals__[name]) for name in sorted(code.co_names) if name in function.__globals__]
    constants = [(name, item) for name, item in used if isinstance(item, int | float)]
    called = [
        (name, code_digest(item))
        for name, item in used
        if isinstance(item, types.FunctionType) and item is not function
    ]
    return sha256(repr((code.co_code, code.co_consts, code.co_names, constants, called)).encode()).hexdigest()[:16]


@process_cache
def module_kernel(stem: str, text: str, owner: str = __name__) -> Any:
    """The kernel ``compute`` of a generated module, which is named by its digest and cached with the sources of
    `owner`."""
    name = f"{stem}_{sha256(text.encode()).hexdigest()[:20]}"
    path = _module_file(f"{name}.py", text, owner)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where Numba looks for the module of code from its disk cache
    if str(path) in source_digest.TEXTS:
        exec(compile(text, path, "exec"), vars(module))
    else:
        spec.loader.exec_module(module)
    return module.compute


def _module_file(name: str, text: str, owner: str) -> Path:
    """The file of a generated module in the cache; a path that no file has where the cache cannot hold it."""
    folder = range_kernel.cache_folder(owner)
    if folder is not None:
        with contextlib.suppress(OSError):  # the cache is full, or holds something else by this name
            code_cache.write_text(folder / name, text)
            return folder / name
    path = code_cache.NOWHERE / name
    source_digest.TEXTS[str(path)] = text.encode()
    return path


@process_cache
def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a scalar function's parameters."""
    return tuple(inspect.signature(function).parameters)
