"""compressed-tensors: packed integers, or 8-bit integers and floats, with scales per group, row, block or matrix.

Source: the formats of the compressed-tensors library (pack-quantized, int-quantized, float-quantized, naive-quantized,
mxfp4 and nvfp4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.quantization_scheme import E2M1_ROUNDING, Checkpoint, Scheme, Unpacked, computed, rounding_of
from ....runtime.tensor.stored_tensor import StoredTensor
from ....runtime.tensor.strided import strided
from ..layout.packed_integers import numbers
from ..layout.scale_grid import Grid
from . import mxfp4
from .fp8 import UNUSED, scaled

FORMATS = {
    "pack-quantized": "integers in words",
    "int-quantized": "int",
    "float-quantized": "float",
    "naive-quantized": "plain",
    "mxfp4-pack-quantized": "mxfp4",
    "nvfp4-pack-quantized": "nvfp4",
    "mixed-precision": "mixed",
}
PLAIN = ("f8_e4m3", "f8_e5m2", "i8")
PACKED, SCALE = "weight_packed", "weight_scale"
E2M1 = np.array((0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6), np.float32)


@dataclass(frozen=True)
class Group:
    """Quantization parameters of some layers: bits of a code, columns of a group (None: no groups), lengths of a
    block."""

    bits: int
    size: int | None
    block: tuple[int, int] | None


def unpack(checkpoint: Checkpoint) -> Unpacked:
    """``weight_packed``, or ``weight`` with a ``weight_scale``, to ``weight``."""
    form = checkpoint.setting("format", "", str, FORMATS)
    groups = declared(checkpoint)
    sizes = sorted({group.size for group in groups if group.size is not None})
    bits = "/".join(str(each) for each in sorted({group.bits for group in groups}))
    found = Unpacked(
        f"compressed-tensors {form}, {bits}-bit" + (f", group {'/'.join(map(str, sizes))}" if sizes else "")
    )
    for name in checkpoint.tensors:
        stem = name.rpartition(".")[0]
        if name.endswith("_packed"):
            packed = four_bit_floats if checkpoint.tensors[name].dtype.name == "u8" else integers
            packed(checkpoint, name.removesuffix("_packed"), groups, found)
        elif name.endswith(f".{SCALE}") and f"{stem}.{PACKED}" not in checkpoint.tensors:
            plain(checkpoint, f"{stem}.weight", groups, found)
        elif name.endswith("_scale") and _is_stacked(checkpoint, name.removesuffix("_scale")):
            plain(checkpoint, name.removesuffix("_scale"), groups, found)
        elif name.endswith((*UNUSED, ".input_zero_point", ".input_global_scale", ".output_zero_point")):
            found.unused.append(name)
    return found


def declared(checkpoint: Checkpoint) -> list[Group]:
    """The groups of layers in the configuration."""
    given = checkpoint.setting("config_groups", {}, dict)
    found = [
        group["weights"]
        for group in given.values()
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    if not found:
        raise checkpoint.error("E-PACKED-CONFIG", "quantization_config has no config_groups with weights")
    return [_group(checkpoint, weights) for weights in found]


def _group(checkpoint: Checkpoint, weights: Mapping[str, Any]) -> Group:
    within = Checkpoint(weights, checkpoint.tensors, checkpoint.path)
    bits, size = within.setting("num_bits", 8), within.setting("group_size", None)
    if not 1 <= bits <= 8:
        raise checkpoint.unsupported(f"quantization_config has num_bits {bits}", ["1 to 8"])
    block = within.setting("block_structure", None, list)
    if block is not None and (
        len(block) != 2 or not all(type(length) is int and 0 < length < 1 << 31 for length in block)
    ):
        raise checkpoint.error(
            "E-PACKED-CONFIG",
            f"quantization_config has block_structure {str(block)[:80]}",
            expected="two positive numbers",
        )
    if size is not None and size != -1:
        checkpoint.group_size(1, size, "config_groups")
    return Group(bits, None if size == -1 else size, None if block is None else (block[0], block[1]))


def integers(checkpoint: Checkpoint, name: str, groups: list[Group], found: Unpacked) -> None:
    """``NAME_packed`` [..., out, words] of codes from the lowest one up; ``NAME_zero_point`` is packed along the
    outputs. Experts in one tensor are packed one by one."""
    packed = checkpoint.part(f"{name}_packed", ("i32",))
    shape = tuple(int(length) for length in checkpoint.note(f"{name}_shape", ("i64", "i32")).reshape(-1))
    inputs = shape[-1] if len(shape) == len(packed.shape) >= 2 and min(shape) > 0 else -1
    bits = next((group.bits for group in groups if math.ceil(inputs * group.bits / 32) == packed.shape[-1]), None)
    if shape[:-1] != packed.shape[:-1] or inputs < 1 or bits is None:
        known = " or ".join(sorted({str(group.bits) for group in groups}))
        why = f"tensor {name + '_packed'!r} does not hold a weight {list(shape)} of {known} bits"
        raise checkpoint.error("E-PACKED-SHAPE", why, found=list(packed.shape))
    scales = Grid(checkpoint, f"{name}_scale", shape, _block(checkpoint, name, shape, groups), name)
    order = _order(checkpoint, name, inputs, scales)
    parts = (f"{name}_{part}" for part in ("packed", "scale", "shape", "zero_point", "g_idx"))
    names = [part for part in parts if part in checkpoint.tensors]
    least = np.float32(1 << bits - 1)
    zeros = _zeros(checkpoint, name, bits, (*shape[:-1], scales.grid[1]))
    words = StoredTensor(packed.dtype, (math.prod(shape[:-1]), packed.shape[-1]), packed.storage)

    def rows(first: int, last: int) -> np.ndarray:
        values = numbers(words[first:last].numpy(), bits)[:, :inputs].astype(np.float32)
        values -= least if zeros is None else _spread(zeros(first, last), scales, order)
        values *= _spread(scales.scales(first, last), scales, order)
        return values

    found.add(name, computed(shape, rows, (packed,), rounding=rounding_of(bits)), names)


def _is_stacked(checkpoint: Checkpoint, name: str) -> bool:
    """Whether a tensor holds the 8-bit weights of experts, which are parameters of one module."""
    tensor = checkpoint.tensors.get(name)
    return tensor is not None and tensor.dtype.name in PLAIN and len(tensor.shape) > 2


def _block(checkpoint: Checkpoint, name: str, shape: tuple[int, ...], groups: list[Group]) -> tuple[int, int] | None:
    """The lengths of the blocks that share a scale, None for one scale per row or matrix."""
    counted = checkpoint.part(f"{name}_scale", None, of=name).shape
    if math.prod(counted) == 1 or (counted and counted[-1] == 1) or len(counted) < 2 or counted == shape[:-1]:
        return None
    known = [group.block or (1, group.size) for group in groups if group.block or group.size]
    fitting = [(rows, columns) for rows, columns in known if columns and counted[-1] == math.ceil(shape[-1] / columns)]
    if not fitting:
        sizes = ", ".join(str(columns) for _, columns in known) or "none"
        why = f"the scales of {name!r} are of groups that the configuration does not have"
        raise checkpoint.error("E-PACKED-SHAPE", why, expected=f"of {sizes} columns", found=list(counted))
    rows, columns = fitting[0]
    assert columns is not None
    return rows, columns


def _order(checkpoint: Checkpoint, weight: str, inputs: int, scales: Grid) -> np.ndarray | None:
    """The group of each input, if they are not in order."""
    name = f"{weight}_g_idx"
    if name not in checkpoint.tensors:
        return None
    order: np.ndarray = checkpoint.part(name, ("i32", "i64"), (inputs,)).numpy()
    if order.min() == order.max() == -1:
        return None
    if order.min() < 0 or order.max() >= scales.grid[1]:
        raise checkpoint.error(
            "E-PACKED-INDEX",
            f"tensor {name!r} names groups that there are not",
            expected=f"0 to {scales.grid[1] - 1}",
            found=f"{order.min()} to {order.max()}",
        )
    return order.astype(np.intp)


def _spread(values: np.ndarray, scales: Grid, order: np.ndarray | None) -> np.ndarray:
    return values[:, order] if order is not None else scales.spread(values)


def _zeros(checkpoint: Checkpoint, weight: str, bits: int, shape: tuple[int, ...]) -> Any:
    """A function that returns the zero points of rows, [rows, groups]; None for symmetric codes."""
    name = f"{weight}_zero_point"
    if name not in checkpoint.tensors:
        return None
    *stacked, outputs, groups = shape
    words = math.ceil(outputs * bits / 32)
    packed = checkpoint.part(name, ("i32",), (*stacked, words, groups))

    def of_matrix(matrix: int, first: int, last: int) -> np.ndarray:
        low, high = first // 32 * bits, min(words, -(-last // 32) * bits)
        view = strided(packed.storage, 4, (groups, high - low), (1, groups), (matrix * words + low) * groups)
        found = numbers(np.frombuffer(view.read(0, view.nbytes), "<u4").reshape(groups, -1), bits)
        begin = first // 32 * 32
        return found[:, first - begin : last - begin].T.astype(np.float32)

    def rows(first: int, last: int) -> np.ndarray:
        pieces = []
        for matrix in range(first // outputs, -(-last // outputs)):
            begin = matrix * outputs
            pieces.append(of_matrix(matrix, max(first - begin, 0), min(last - begin, outputs)))
        return np.concatenate(pieces)

    return rows


def plain(checkpoint: Checkpoint, name: str, groups: list[Group], found: Unpacked) -> None:
    """``weight`` of 8-bit integers or floats, unpacked."""
    weight = checkpoint.part(name, PLAIN, of=f"{name}_scale")
    parts = (name, f"{name}_scale", f"{name}_zero_point")
    names = [part for part in parts if part in checkpoint.tensors]
    block = _block(checkpoint, name, weight.shape, groups)
    tensor = scaled(checkpoint, names[0], PLAIN, names[1], block, names[2] if len(names) > 2 else None)
    found.add(names[0], tensor, names)


def four_bit_floats(checkpoint: Checkpoint, name: str, groups: list[Group], found: Unpacked) -> None:
    """``NAME_packed`` [..., out, in / 2] of E2M1 floats, the first in the low half; a global scale divides, of each
    matrix or of all. MXFP4 stays blocks."""
    packed = checkpoint.part(f"{name}_packed", ("u8",))
    if len(packed.shape) < 2 or not packed.count:
        want, there = "[..., rows, columns / 2]", list(packed.shape)
        raise checkpoint.error(
            "E-PACKED-SHAPE", f"tensor {name + '_packed'!r} has another shape", expected=want, found=there
        )
    *leading, height, width = packed.shape
    shape = (*leading, height, width * 2)
    scales = Grid(checkpoint, f"{name}_scale", shape, _block(checkpoint, name, shape, groups), name)
    whole = f"{name}_global_scale"
    exponents = (
        scales.tensor.dtype.name in mxfp4.EXPONENTS
        and whole not in checkpoint.tensors
        and scales.block == (1, mxfp4.BLOCK.block)
    )
    names = [f"{name}_{part}" for part in ("packed", "scale", "global_scale") if f"{name}_{part}" in checkpoint.tensors]
    if exponents and shape[-1] == scales.grid[1] * mxfp4.BLOCK.block:
        codes = StoredTensor(packed.dtype, (*leading, height, scales.grid[1], mxfp4.HALF), packed.storage)
        found.add(name, mxfp4.blocks(codes, scales.tensor), names)
        return
    divisors = _divisors(checkpoint, whole, math.prod(leading))
    pairs = StoredTensor(packed.dtype, (math.prod(leading) * height, width), packed.storage)

    def rows(first: int, last: int) -> np.ndarray:
        values: np.ndarray = E2M1[numbers(pairs[first:last].numpy(), 4)]
        values *= scales.spread(scales.scales(first, last) / divisors[np.arange(first, last) // height])
        return values

    found.add(name, computed(shape, rows, (packed,), rounding=E2M1_ROUNDING), names)


def _divisors(checkpoint: Checkpoint, name: str, matrices: int) -> np.ndarray:
    """The divisor of each matrix's scales, f32 [matrices, 1]."""
    if name not in checkpoint.tensors:
        return np.ones((matrices, 1), np.float32)
    stated = checkpoint.note(name, ("f32", "f16", "bf16")).astype(np.float32).reshape(-1, 1)
    if len(stated) not in (1, matrices):
        why = f"tensor {name!r} is not one number for each matrix"
        raise checkpoint.error("E-PACKED-SHAPE", why, expected=[matrices], found=list(checkpoint.tensors[name].shape))
    return np.broadcast_to(stated, (matrices, 1))


SCHEME = Scheme(("compressed-tensors", "compressed_tensors"), unpack)
