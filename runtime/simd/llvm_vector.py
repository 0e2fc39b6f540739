"""Vectors of 16 lanes for kernels emitted as LLVM IR: the counterpart of `vector` for Numba kernels.

A `Vector` is an expression: arithmetic on it adds instructions. Python loops and conditions around it are done while
the kernel is made, so that what they repeat is unrolled and what they choose costs nothing.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir

from ..jit.isa import VECTOR_LANES, features

LANES = VECTOR_LANES
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32 = ir.FloatType()
HALF = ir.HalfType()
BYTE_SHUFFLES = {
    16: ("llvm.x86.ssse3.pshuf.b.128", "ssse3"),
    32: ("llvm.x86.avx2.pshuf.b", "avx2"),
    64: ("llvm.x86.avx512.pshuf.b.512", "avx512bw"),
}
"""Instructions that look up bytes, and the features that they need, by the number of bytes."""


class _BF16Type(ir.Type):  # type: ignore[misc]
    """bfloat16, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BF16Type)

    def __hash__(self) -> int:
        return hash(_BF16Type)


BF16 = _BF16Type()


def vector_type(element: Any, lanes: int = LANES) -> Any:
    """LLVM's vector of some lanes."""
    return ir.VectorType(element, lanes)


class Vector:
    """Sixteen f32 or i32 lanes, or a mask; operators take other vectors and Python numbers."""

    def __init__(self, code: Code, value: Any) -> None:
        self.code = code
        self.value = value

    @property
    def is_float(self) -> bool:
        """Whether the lanes are f32."""
        return bool(self.value.type.element == F32)

    def _with(self, other: Vector | float, floats: str, ints: str) -> Vector:
        build = self.code.builder
        right = other.value if isinstance(other, Vector) else ir.Constant(self.value.type, [other] * LANES)
        return Vector(self.code, getattr(build, floats if self.is_float else ints)(self.value, right))

    def __add__(self, other: Vector | float) -> Vector:
        return self._with(other, "fadd", "add")

    def __sub__(self, other: Vector | float) -> Vector:
        return self._with(other, "fsub", "sub")

    def __mul__(self, other: Vector | float) -> Vector:
        return self._with(other, "fmul", "mul")

    def __and__(self, other: Vector | int) -> Vector:
        return self._with(other, "", "and_")

    def __or__(self, other: Vector | int) -> Vector:
        return self._with(other, "", "or_")

    def __xor__(self, other: Vector | int) -> Vector:
        return self._with(other, "", "xor")

    def __lshift__(self, other: Vector | int) -> Vector:
        return self._with(other, "", "shl")

    def __rshift__(self, other: Vector | int) -> Vector:
        """Logical."""
        return self._with(other, "", "lshr")

    def as_float(self) -> Vector:
        """Signed integers as f32."""
        return Vector(self.code, self.code.builder.sitofp(self.value, vector_type(F32)))

    def bits_as_float(self) -> Vector:
        """The f32 with these bit patterns."""
        return Vector(self.code, self.code.builder.bitcast(self.value, vector_type(F32)))

    def lanes(self, order: Sequence[int]) -> Vector:
        """Lanes in another order, which is known."""
        mask = ir.Constant(vector_type(I32), list(order))
        return Vector(self.code, self.code.builder.shuffle_vector(self.value, self.value, mask))

    def lane(self, index: int) -> Vector:
        """The only lane."""
        return self.lanes([index] * LANES)

    def sum(self) -> Any:
        """All lanes added up, in a fixed order."""
        value = self.value
        build = self.code.builder
        for half in (8, 4, 2, 1):
            other = build.shuffle_vector(
                value, value, ir.Constant(vector_type(I32), [*range(half, 2 * half), *[0] * (LANES - half)])
            )
            value = build.fadd(value, other)
        return build.extract_element(value, ir.Constant(I32, 0))


class Code:
    """A kernel under construction.

    Args:
        builder: where instructions go.
    """

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        """An intrinsic function of LLVM."""
        module = self.builder.module
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, arguments)

    def opaque(self, value: Any) -> Any:
        """An integer of which LLVM knows nothing: loads from such an address are not joined with others, and a loop of
        that many rounds is not unrolled."""
        identity = ir.InlineAsm(ir.FunctionType(value.type, [value.type]), "", "=r,0")
        return self.builder.call(identity, [value])

    def word(self, value: int) -> Any:
        """A 64-bit number that is known."""
        return ir.Constant(I64, value)

    def at(self, address: Any, offset: int = 0, pointee: Any = I8) -> Any:
        """A pointer, `offset` bytes after an address."""
        moved = self.builder.add(address, self.word(offset)) if offset else address
        return self.builder.inttoptr(moved, pointee.as_pointer())

    def load(self, address: Any, kind: Any, offset: int = 0) -> Any:
        """Load from an address of any alignment."""
        value = self.builder.load(self.at(address, offset, kind))
        value.align = 1
        return value

    def store(self, value: Any, address: Any, offset: int = 0) -> None:
        """Store at an address of any alignment."""
        self.builder.store(value, self.at(address, offset, value.type), align=1)

    def store_masked(self, vector: Vector, address: Any, mask: Any) -> None:
        """Store the lanes of f32 where a vector of booleans is true."""
        place, align = self.at(address, 0, vector.value.type), ir.Constant(I32, 1)
        self.call("llvm.masked.store.v16f32.p0", ir.VoidType(), vector.value, place, align, mask)

    def prefetch(self, address: Any, offset: int = 0, writing: bool = False) -> None:
        """Have a line brought into the caches, all of them where it will be written; any address will do."""
        place = self.at(address, offset)
        entries = [ir.Constant(I32, number) for number in ((1, 3, 1) if writing else (0, 2, 1))]
        module = self.builder.module
        kind = ir.FunctionType(ir.VoidType(), [place.type, I32, I32, I32])
        self.builder.call(
            module.globals.get("llvm.prefetch.p0") or ir.Function(module, kind, "llvm.prefetch.p0"), [place, *entries]
        )

    def floats(self, address: Any, offset: int = 0) -> Vector:
        """Sixteen f32."""
        return Vector(self, self.load(address, vector_type(F32), offset))

    def widened(self, values: Any, signed: bool = False) -> Vector:
        """A vector of narrow integers as i32."""
        return Vector(self, (self.builder.sext if signed else self.builder.zext)(values, vector_type(I32)))

    def splat(self, value: Any) -> Vector:
        """A scalar in all lanes."""
        kind = vector_type(value.type)
        undefined = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(undefined, value, ir.Constant(I32, 0))
        return Vector(self, self.builder.shuffle_vector(one, undefined, ir.Constant(vector_type(I32), [0] * LANES)))

    def floats_of(self, entries: Sequence[float]) -> Vector:
        """Sixteen f32 that are known."""
        return Vector(self, ir.Constant(vector_type(F32), [float(number) for number in entries]))

    def ints_of(self, entries: Sequence[int]) -> Vector:
        """Sixteen i32 that are known."""
        return Vector(self, ir.Constant(vector_type(I32), list(entries)))

    def from_half(self, patterns: Any) -> Any:
        """Half-precision bit patterns, i16 or a vector of them, as f32."""
        vector = isinstance(patterns.type, ir.VectorType)
        if "f16c" in features():
            kind, wide = (
                (vector_type(HALF, patterns.type.count), vector_type(F32, patterns.type.count))
                if vector
                else (HALF, F32)
            )
            return self.builder.fpext(self.builder.bitcast(patterns, kind), wide)
        if vector and patterns.type.count != LANES:
            count = patterns.type.count
            whole, part = ([lane % count for lane in range(size)] for size in (LANES, count))
            made = self.from_half(self.builder.shuffle_vector(patterns, patterns, ir.Constant(vector_type(I32), whole)))
            return self.builder.shuffle_vector(made, made, ir.Constant(vector_type(I32, count), part))
        wide = self.widened(patterns) if vector else self.splat(self.builder.zext(patterns, I32))
        magnitude = (wide & 0x7FFF) << 13
        scaled = magnitude.bits_as_float() * 2.0**112
        special = Vector(
            self, self.builder.icmp_unsigned(">=", magnitude.value, ir.Constant(vector_type(I32), [0x0F800000] * LANES))
        )
        bits = Vector(self, self.builder.bitcast(scaled.value, vector_type(I32)))
        finite = self.select(special, magnitude | 0x7F800000, bits)
        made = (finite | ((wide & 0x8000) << 16)).bits_as_float().value
        return made if vector else self.builder.extract_element(made, ir.Constant(I32, 0))

    def select(self, mask: Vector, yes: Vector, no: Vector) -> Vector:
        """`yes` where the mask is set."""
        return Vector(self, self.builder.select(mask.value, yes.value, no.value))

    def mask(self, bits: Any) -> Vector:
        """The bits of an i16, lowest first."""
        return Vector(self, self.builder.bitcast(bits, vector_type(I1)))

    def fma(self, a: Vector, b: Vector, c: Vector) -> Vector:
        """a * b + c, rounded once where the processor can."""
        if "fma" not in features():
            return a * b + c
        return Vector(self, self.call(f"llvm.fma.v{LANES}f32", vector_type(F32), a.value, b.value, c.value))

    def table(self, indices: Vector, entries: Sequence[float]) -> Vector:
        """Look up lanes in a table of sixteen constants; only the lowest four bits of an index count."""
        if "avx512f" in features():
            return Vector(
                self,
                self.call(
                    "llvm.x86.avx512.permvar.sf.512", vector_type(F32), self.floats_of(entries).value, indices.value
                ),
            )
        low = indices & 15
        step = entries[1] - entries[0]
        if all(number == entries[0] + step * index for index, number in enumerate(entries)):
            return low.as_float() * step + entries[0]
        if "avx2" in features():
            return self._table_of_eights(low, entries)
        place = self.constant([float(number) for number in entries], F32)
        made = ir.Constant(vector_type(F32), ir.Undefined)
        for lane in range(LANES):
            index = self.builder.zext(self.builder.extract_element(low.value, ir.Constant(I32, lane)), I64)
            entry = self.load(self.builder.add(place, self.builder.mul(index, self.word(4))), F32)
            made = self.builder.insert_element(made, entry, ir.Constant(I32, lane))
        return Vector(self, made)

    def _table_of_eights(self, indices: Vector, entries: Sequence[float]) -> Vector:
        """As `table`, by AVX2, whose lookup takes eight entries and the lowest three bits of eight indices."""
        build, eight = self.builder, vector_type(F32, 8)
        tables = [ir.Constant(eight, [float(number) for number in entries[first : first + 8]]) for first in (0, 8)]
        limit, parts = ir.Constant(vector_type(I32, 8), [7] * 8), []
        for first in (0, 8):
            order = ir.Constant(vector_type(I32, 8), list(range(first, first + 8)))
            own = build.shuffle_vector(indices.value, indices.value, order)
            low, high = (self.call("llvm.x86.avx2.permps", eight, table, own) for table in tables)
            parts.append(build.select(build.icmp_signed(">", own, limit), high, low))
        return Vector(self, build.shuffle_vector(*parts, ir.Constant(vector_type(I32), list(range(LANES)))))

    def constant(self, entries: Sequence[float], kind: Any) -> Any:
        """The address of a table that is part of the kernel."""
        module = self.builder.module
        shape = ir.ArrayType(kind, len(entries))
        held = ir.Constant(shape, list(entries))
        name = f"table.{zlib.crc32(repr((str(kind), list(entries))).encode()):x}"
        place = module.globals.get(name)
        if place is None:
            place = ir.GlobalVariable(module, shape, name)
            place.global_constant, place.linkage, place.initializer, place.align = True, "internal", held, 64
        return self.builder.ptrtoint(place, I64)

    def variable(self, value: Any) -> Any:
        """A variable that holds a value; it becomes a register."""
        with self.builder.goto_entry_block():
            place = self.builder.alloca(value.type)
        self.builder.store(value, place)
        return place

    @contextlib.contextmanager
    def loop(self, start: Any, stop: Any, step: int = 1) -> Iterator[Any]:
        """Instructions for each number from `start` below `stop`; gives the number."""
        build = self.builder
        index = self.variable(start)
        head, body, end = (build.append_basic_block(name) for name in ("head", "body", "end"))
        build.branch(head)
        build.position_at_end(head)
        now = build.load(index)
        build.cbranch(build.icmp_signed("<", now, stop), body, end)
        build.position_at_end(body)
        yield now
        build.store(build.add(now, self.word(step)), index)
        build.branch(head)
        build.position_at_end(end)

    def repeat(self, count: Any, values: Sequence[Any], body: Callable[[Any, list[Any]], Sequence[Any]]) -> list[Any]:
        """Loop `count` times over values in registers: `body` maps the round and the values to the next values."""
        build, before = self.builder, self.builder.block
        loop, after = (build.append_basic_block(name) for name in ("repeat", "repeated"))
        build.cbranch(build.icmp_signed(">", count, self.word(0)), loop, after)
        build.position_at_end(loop)
        index, *held = phis = [build.phi(value.type) for value in (count, *values)]
        made = body(index, held)
        following, end = build.add(index, self.word(1)), build.block
        for phi, start, value in zip(phis, (self.word(0), *values), (following, *made), strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(value, end)
        build.cbranch(build.icmp_signed("<", following, count), loop, after)
        build.position_at_end(after)
        found = [build.phi(value.type) for value in values]
        for phi, start, value in zip(found, values, made, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(value, end)
        return found


class Bytes:
    """Unsigned bytes, 64 or fewer, for integer dot products."""

    def __init__(self, code: Code, value: Any) -> None:
        self.code = code
        self.value = value

    @property
    def count(self) -> int:
        """Number of bytes."""
        return int(self.value.type.count)

    def _with(self, operation: str, other: Bytes | int) -> Bytes:
        right = other.value if isinstance(other, Bytes) else ir.Constant(self.value.type, [other] * self.count)
        return Bytes(self.code, getattr(self.code.builder, operation)(self.value, right))

    def __and__(self, other: Bytes | int) -> Bytes:
        return self._with("and_", other)

    def __or__(self, other: Bytes | int) -> Bytes:
        return self._with("or_", other)

    def __xor__(self, other: Bytes | int) -> Bytes:
        return self._with("xor", other)

    def __rshift__(self, other: int) -> Bytes:
        return self._with("lshr", other)

    def __lshift__(self, other: int) -> Bytes:
        return self._with("shl", other)

    def moved(self, places: Sequence[int]) -> Bytes:
        """Equal pieces, each shifted right by a number of its own, left by a negative one; bits that leave a byte may
        enter its neighbour."""
        build, shorts = self.code.builder, vector_type(I16, self.count // 2)
        held, each = build.bitcast(self.value, shorts), self.count // 2 // len(places)
        for shift, sign in ((build.lshr, 1), (build.shl, -1)):
            if any(sign * place > 0 for place in places):
                held = shift(held, ir.Constant(shorts, [max(sign * place, 0) for place in places for _ in range(each)]))
        return Bytes(self.code, build.bitcast(held, self.value.type))

    def where(self, mask: Any) -> Bytes:
        """These bytes where a bit of an integer is set, 0 elsewhere."""
        build = self.code.builder
        chosen = build.bitcast(mask, vector_type(I1, self.count))
        return Bytes(self.code, build.select(chosen, self.value, ir.Constant(self.value.type, [0] * self.count)))

    def table(self, entries: Sequence[int]) -> Bytes:
        """Look up bytes in a table of sixteen constants; indices are below 16."""
        build, held = self.code.builder, ir.Constant(self.value.type, [*entries] * (self.count // 16))
        name, needed = BYTE_SHUFFLES[self.count]
        if needed in features():
            return Bytes(self.code, self.code.call(name, self.value.type, held, self.value))
        if self.count == 16:
            return self._loaded(entries)
        half = self.count // 2
        parts = (range(half), range(half, self.count), range(self.count))
        low, high, both = (ir.Constant(vector_type(I32, len(part)), [*part]) for part in parts)
        found = (
            Bytes(self.code, build.shuffle_vector(self.value, self.value, part)).table(entries).value
            for part in (low, high)
        )
        return Bytes(self.code, build.shuffle_vector(*found, both))

    def _loaded(self, entries: Sequence[int]) -> Bytes:
        """Bytes of a table, loaded one by one."""
        build, table = self.code.builder, self.code.constant(entries, I8)
        made = ir.Constant(self.value.type, ir.Undefined)
        for lane in range(self.count):
            place = ir.Constant(I32, lane)
            index = build.zext(build.extract_element(self.value, place), I64)
            made = build.insert_element(made, self.code.load(build.add(table, index), I8), place)
        return Bytes(self.code, made)
