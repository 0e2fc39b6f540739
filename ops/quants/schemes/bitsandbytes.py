"""bitsandbytes: 4-bit table codes with a scale per run of elements, or 8-bit integers with a scale per row.

Sources: Dettmers et al. 2023 (QLoRA, arXiv 2305.14314) and 2022 (LLM.int8(), arXiv 2208.07339); the library's saved
states.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ....runtime.base.dataclass import dataclass
from ....runtime.base.units import counted
from ....runtime.contract.quantization_scheme import Checkpoint, Scheme, Unpacked, computed, rounding_of
from ....runtime.tensor.stored_tensor import StoredTensor

KINDS = ("nf4", "fp4")
STATES = tuple(f".quant_state.bitsandbytes__{kind}" for kind in KINDS)
PLAIN = ("u8", "i8", "bf16", "f16", "f32")
"""Dtypes that tensors of 4-bit codes are stored as."""
TABLE_ROUNDING = 0.18
"""Half of the widest step of NF4 and of FP4, and a tenth for scales in 8 bits."""
PER_127 = np.float32(7.874015718698502e-3)


def unpack(checkpoint: Checkpoint) -> Unpacked:
    """``weight`` with a ``quant_state``, or with ``SCB``, to weights [out, in]."""
    four_bit = checkpoint.stems(*STATES)
    eight_bit = checkpoint.stems(".SCB")
    found = Unpacked("bitsandbytes")
    kinds: dict[str, None] = {}
    for name in four_bit:
        state = State(checkpoint, name)
        kinds[state.title] = None
        found.add(name, state.tensor(), state.names)
    for stem in eight_bit:
        parts = [
            f"{stem}.weight",
            f"{stem}.SCB",
            *(name for name in [f"{stem}.weight_format"] if name in checkpoint.tensors),
        ]
        found.add(f"{stem}.weight", rows_scaled(checkpoint, stem), parts)
    found.title = "bitsandbytes " + " and ".join([*kinds, *(["8-bit"] if eight_bit else [])])
    return found


def rows_scaled(checkpoint: Checkpoint, stem: str) -> StoredTensor:
    """8 bits: ``weight`` [out, in] of integers, ``SCB`` [out], the largest magnitude of each row."""
    weight = checkpoint.matrix(f"{stem}.weight", ("i8",))
    scales = checkpoint.part(f"{stem}.SCB", ("f32", "f16"), weight.shape[:1], stem)
    if f"{stem}.weight_format" in checkpoint.tensors and checkpoint.note(f"{stem}.weight_format", ("u8",)).any():
        raise checkpoint.unsupported(f"tensor {stem + '.weight'!r} is not stored in rows", ["weight_format 0 (rows)"])

    def rows(first: int, last: int) -> np.ndarray:
        values = weight[first:last].numpy().astype(np.float32)
        values *= scales[first:last].numpy().astype(np.float32)[:, None]
        values *= PER_127
        return values

    return computed(weight.shape, rows, (weight, scales), rounding=rounding_of(8))


@dataclass(frozen=True)
class Scales:
    """The scales of runs, possibly quantized themselves: ``table[code] * scale of its run + offset``."""

    codes: StoredTensor
    table: npt.NDArray[np.float32]
    of_runs: StoredTensor
    run: int
    offset: np.float32

    def get(self, first: int, last: int) -> npt.NDArray[np.float32]:
        runs = np.arange(first, last) // self.run
        low, high = first // self.run, -(-last // self.run)
        values = self.table[self.codes[first:last].numpy()]
        values *= self.of_runs[low:high].numpy()[runs - low]
        values += self.offset
        return values


class State:
    """A 4-bit weight: two codes a byte, the first in the high half, row-major."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        ending = next(ending for ending in STATES if name + ending in checkpoint.tensors)
        self.checkpoint, self.name = checkpoint, name
        said = self._said(bytes(checkpoint.note(name + ending, ("u8",))))
        self.run = self._number(said, "blocksize")
        self.shape = self._shape(said)
        count = math.prod(self.shape)
        self.codes = checkpoint.part(name, PLAIN)
        if self.codes.nbytes != -(-count // 2):
            why = f"tensor {name!r} does not hold {list(self.shape)} values of 4 bits"
            raise checkpoint.error(
                "E-PACKED-SHAPE", why, expected=f"{counted(-(-count // 2), 'byte')}", found=f"{self.codes.nbytes:,}"
            )
        self.table = self._table("quant_map", 16)
        runs = -(-count // self.run)
        nested = f"{name}.nested_absmax" in checkpoint.tensors
        self.absmax = checkpoint.part(f"{name}.absmax", ("u8",) if nested else ("f32",), (runs,), name)
        self.scales = self._nested(said, runs) if nested else None
        self.title = f"{ending.rpartition('_')[2]}, blocks of {self.run}" + (", scales in 8 bits" if nested else "")
        parts = ("absmax", "quant_map", *(("nested_absmax", "nested_quant_map") if nested else ()))
        self.names = [name, *(f"{name}.{part}" for part in parts), name + ending]

    def tensor(self) -> StoredTensor:
        """The weight."""
        return computed(self.shape, self.rows, (self.codes, self.absmax), rounding=TABLE_ROUNDING)

    def rows(self, first: int, last: int) -> np.ndarray:
        """``table[code] * scale`` for rows ``[first, last)``, as float32."""
        width = self.shape[-1]
        start, stop = first * width, last * width
        packed = np.frombuffer(self.codes.storage.read(start // 2, -(-stop // 2)), np.uint8)
        codes = np.empty((len(packed), 2), np.uint8)
        codes[:, 0], codes[:, 1] = packed >> 4, packed & 15
        values = self.table[codes.reshape(-1)[start % 2 : start % 2 + stop - start]]
        low, high = start // self.run, -(-stop // self.run)
        scales = self.absmax[low:high].numpy() if self.scales is None else self.scales.get(low, high)
        values *= np.repeat(scales, self.run)[start - low * self.run : stop - low * self.run]
        return values.reshape(last - first, width)

    def _said(self, text: bytes) -> Mapping[str, Any]:
        try:
            said = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.checkpoint.error(
                "E-PACKED-STATE", f"the state of tensor {self.name!r} is no JSON: {error}"
            ) from error
        if not isinstance(said, dict):
            raise self.checkpoint.error("E-PACKED-STATE", f"the state of tensor {self.name!r} is no JSON object")
        return said

    def _number(self, said: Mapping[str, Any], key: str) -> int:
        value = said.get(key)
        if type(value) is not int or not 0 < value < 1 << 31:
            why = f"the state of tensor {self.name!r} has {key} {str(value)[:80]}"
            raise self.checkpoint.error("E-PACKED-STATE", why, expected="a positive number")
        return value

    def _shape(self, said: Mapping[str, Any]) -> tuple[int, ...]:
        shape = said.get("shape")
        if (
            not isinstance(shape, list)
            or not 0 < len(shape) <= 8
            or not all(type(length) is int and 0 < length < 1 << 40 for length in shape)
        ):
            raise self.checkpoint.error(
                "E-PACKED-STATE", f"the state of tensor {self.name!r} has the shape {str(shape)[:80]}"
            )
        return tuple(shape)

    def _table(self, part: str, length: int) -> npt.NDArray[np.float32]:
        self.checkpoint.part(f"{self.name}.{part}", ("f32",), (length,), self.name)
        return self.checkpoint.note(f"{self.name}.{part}", ("f32",))

    def _nested(self, said: Mapping[str, Any], runs: int) -> Scales:
        run, offset = self._number(said, "nested_blocksize"), said.get("nested_offset")
        if not isinstance(offset, int | float) or isinstance(offset, bool) or not math.isfinite(offset):
            raise self.checkpoint.error(
                "E-PACKED-STATE", f"the state of tensor {self.name!r} has nested_offset {str(offset)[:80]}"
            )
        of_runs = self.checkpoint.part(f"{self.name}.nested_absmax", ("f32",), (-(-runs // run),), self.name)
        return Scales(self.absmax, self._table("nested_quant_map", 256), of_runs, run, np.float32(offset))


SCHEME = Scheme(("bitsandbytes",), unpack)
