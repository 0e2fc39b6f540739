"""Named arguments of kernels: what a launch refuses, and that the words of a block reach the parameters that they are
named for."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import ast
import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import candle_convert
import numpy as np
import pytest
from candle_convert.runtime.jit import code_cache
from candle_convert.runtime.jit.address import f64, i64, number
from candle_convert.runtime.jit.kernel_arguments import Address, Words
from candle_convert.runtime.jit.llvm_kernel import EmittedKernel
from candle_convert.runtime.jit.range_kernel import range_kernel
from candle_convert.runtime.plan.kernel_api import Allocation, Buffer, Launch


class Line(NamedTuple):
    """A straight line."""

    slope: float
    start: int


class Place(NamedTuple):
    """Where a kernel writes, and what."""

    line: Line
    out: Address


def kernels() -> list[Any]:
    """A kernel with parameters of every kind, each time a new one."""

    @range_kernel
    def written(place: Place, count: int, first: Words, scale: float, second: Words, part: int, parts: int) -> None:
        out = f64(place.out)
        out[0], out[1], out[2], out[3] = place.line.slope, place.line.start, count, scale
        for at in range(count):
            out[4 + 2 * at], out[5 + 2 * at] = first[at], number(second[at])
        out[4 + 2 * count], out[5 + 2 * count] = part, parts

    return [written]


@pytest.mark.parametrize("kept", [True, False])
def test_every_kind_of_argument_reaches_its_parameter(monkeypatch, kept):
    if not kept:
        monkeypatch.setattr(code_cache, "folder", lambda: None)
    [kernel] = kernels()
    out = np.zeros(10)
    given = {
        "second": [0.5, 0.25],
        "scale": 3,
        "first": (7, 8),
        "count": 2,
        "place": Place(Line(1.5, -4), out.ctypes.data),
    }
    words = kernel.parameters.block(given)
    block = np.array([word if isinstance(word, int) else np.float64(word).view(np.int64) for word in words], np.int64)
    kernel.call(block.ctypes.data, 1, 3)
    np.testing.assert_array_equal(out, [1.5, -4, 2, 3, 7, 0.5, 8, 0.25, 1, 3])


def buffer() -> Buffer:
    return Buffer(np.dtype(np.float32), (2,), Allocation(8))


@range_kernel
def pair(x: Address, count: int, scale: float, rest: Words, part: int, parts: int) -> None:
    """Only launched."""


@pytest.mark.parametrize(
    "changed",
    [
        {"x": None},
        {"x": 1.0},
        {"count": 1.5},
        {"count": buffer()},
        {"scale": buffer()},
        {"rest": 3},
        {"rows": 1},
        {"x": ...},
        {"rest": ...},
    ],
)
def test_launches_refuse_what_a_kernel_does_not_take(changed):
    given = {"x": buffer(), "count": 3, "scale": 1, "rest": (1, 2.0)}
    assert Launch(pair, 2, **given).arguments[1:] == (3, 1.0, 4, 1, 2.0)
    with pytest.raises(TypeError, match="pair: "):
        Launch(pair, 2, **{name: value for name, value in {**given, **changed}.items() if value is not ...})


def test_the_order_of_names_does_not_matter():
    x = buffer()
    one, two = Launch(pair, x=x, count=3, scale=2.0, rest=()), Launch(pair, rest=(), scale=2.0, count=3, x=x)
    assert one.arguments == two.arguments
    with pytest.raises(TypeError, match="multiple values"):
        Launch(pair, **{"x": x}, x=x)  # noqa: PIE804 (the doubled name is the test)


def test_kernels_of_instructions_have_names_too():
    def write(builder: Any, part: Any, parts: Any, *, target: Any, value: Any) -> None:
        builder.store(builder.add(value, part), builder.inttoptr(target, value.type.as_pointer()))

    kernel, out = EmittedKernel("test_written", write), np.zeros(1, np.int64)
    block = np.array(kernel.parameters.block({"value": 40, "target": out.ctypes.data}))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.address)(block.ctypes.data, 2, 3)
    assert out[0] == 42
    with pytest.raises(TypeError, match="test_written: "):
        Launch(kernel, value=3)


def untold(x, parts):
    """Without a part."""


def strange(x: i64, part: int, parts: int) -> None:
    """With a pointer."""


def test_kernels_read_no_argument_by_number():
    files, found = [], []
    root = Path(candle_convert.__file__).parent
    for path in (path for folder in ("ops", "runtime") for path in (root / folder).rglob("*.py")):
        text = path.read_text()
        if "range_kernel" not in text and "import inne" not in text and "inlined" not in text:
            continue
        files.append(path.name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and any(
                "inne" in name or "inlined" in name or "range_kernel" in name
                for name in map(ast.unparse, node.decorator_list)
            ):
                read = (
                    each
                    for each in ast.walk(node)
                    if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Constant)
                )
                found += [f"{path.name}: {node.name}" for each in read if ast.unparse(each.value) == "args"]
    assert "winograd.py" in files
    assert not found


@pytest.mark.parametrize(("function", "said"), [(untold, "part and parts"), (strange, "annotation")])
def test_parameters_that_no_launch_could_fill_are_refused(function, said):
    kernel = range_kernel(function)
    with pytest.raises(TypeError, match=said):
        Launch(kernel, x=1)
