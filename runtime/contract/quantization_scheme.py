"""Quantization scheme contract: how quantized checkpoints store one weight as several tensors.

Every module directly in `ops/quants/schemes/` reads a scheme and defines a constant `SCHEME`. A scheme returns the
weights under the names of the unquantized model, as stored tensors: rows are dequantized when they are read. Every
module directly in `ops/quants/packings/` writes one and defines `PACKINGS`: rows are quantized when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..base.dataclass import dataclass
from ..base.errors import FormatError, UnsupportedError
from ..tensor.dtype import F32, DType
from ..tensor.storage import Derived
from ..tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np

BAND = 1 << 18
"""Elements dequantized at a time, so that temporaries stay in the CPU cache."""
LARGEST_NOTE = 1 << 16
"""Maximum bytes of a tensor that describes others (a shape, a state in JSON); it is read when a model is opened."""


@dataclass(frozen=True)
class Scheme:
    """One way of storing quantized weights.

    Attributes:
        methods: values of `quant_method` in a config.json.
        unpack: returns the weights of a checkpoint.
    """

    methods: tuple[str, ...]
    unpack: Callable[[Checkpoint], Unpacked]


@dataclass(frozen=True)
class Packing:
    """A type of weights that `quantize` writes as several tensors.

    Attributes:
        name: ``quantize IN OUT NAME``.
        title: what it stores.
        pack: returns the tensors of a weight [out, in] by their names in its module, for a group size.
        configure: returns the `quantization_config` of a config.json, for the names of skipped
            modules and a group size.
        group: how many elements of a row share a scale unless the user says; None where it is no choice.
        multiples: what the numbers of rows and of columns are multiples of; columns also of the group size.
    """

    name: str
    title: str
    pack: Callable[[StoredTensor, int], dict[str, StoredTensor]]
    configure: Callable[[Sequence[str], int], dict[str, Any]]
    group: int | None = None
    multiples: tuple[int, int] = (1, 1)

    def steps(self, group: int) -> tuple[int, int]:
        """What the numbers of rows and of columns of a matrix are multiples of, with groups of that size."""
        rows, columns = self.multiples
        return rows, columns if self.group is None else math.lcm(columns, group)


@dataclass
class Unpacked:
    """The dequantized weights of a checkpoint.

    Attributes:
        title: the scheme and its parameters, such as ``gptq 4-bit, group 128``.
        weights: lazy weights by their names in the unquantized model.
        parts: for each weight the names of the tensors that store it.
        unused: further tensors that do not store weights, such as activation scales.
    """

    title: str
    weights: dict[str, StoredTensor] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def add(self, name: str, tensor: StoredTensor, parts: Iterable[str]) -> None:
        """Add a weight and the names of the tensors that store it."""
        self.weights[name] = tensor
        self.parts[name] = list(parts)


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint and its quantization configuration; every error names the file.

    Attributes:
        config: `quantization_config` of the config.json.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    path: str | None = None

    def error(self, code: str, why: str, **sides: Any) -> FormatError:
        """The error for a checkpoint that contradicts itself; the caller raises it."""
        return FormatError(
            code, self.path, why, **({"hint": "Is the download whole, and is config.json this model's?"} | sides)
        )

    def unsupported(self, why: str, known: Iterable[object]) -> UnsupportedError:
        """The error for an unknown variant; `known` lists the supported ones."""
        return UnsupportedError("E-PACKED-KIND", self.path, why, hint=f"Known are: {', '.join(map(str, known))}")

    def setting(
        self, name: str, default: Any, kind: type | tuple[type, ...] = int, among: Iterable[Any] | None = None
    ) -> Any:
        """A parameter of the configuration; `default` if it is missing or null."""
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise self.error("E-PACKED-CONFIG", f"quantization_config has {name} {str(value)[:80]!r}")
        if among is not None and value not in (known := tuple(among)):
            raise self.unsupported(f"quantization_config has {name} {str(value)[:80]!r}", known)
        return value

    def group_size(self, columns: int, size: int | None, name: str) -> int:
        """Elements of a row that share a scale; -1 is all of them."""
        if size == -1 or size is None:
            return max(1, columns)
        if type(size) is not int or size < 1:
            raise self.error(
                "E-PACKED-CONFIG",
                f"the groups of {name!r} have {str(size)[:80]!r} elements",
                expected="a positive number, or -1",
            )
        return size

    def part(
        self, name: str, dtypes: Iterable[str] | None, shape: tuple[int, ...] | None = None, of: str = ""
    ) -> StoredTensor:
        """A required tensor; FormatError if it is missing or of another dtype or shape than given."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise self.error(
                "E-PACKED-MISSING",
                f"tensor {name!r} is missing" + (f", without which {of!r} has no values" if of else ""),
            )
        if dtypes is not None and tensor.dtype.name not in (known := tuple(dtypes)):
            raise self.error(
                "E-PACKED-DTYPE",
                f"tensor {name!r} is of another type",
                expected=" or ".join(known),
                found=tensor.dtype.name,
            )
        if shape is not None and tensor.shape != shape:
            raise self.error(
                "E-PACKED-SHAPE", f"tensor {name!r} has another shape", expected=list(shape), found=list(tensor.shape)
            )
        return tensor

    def matrix(self, name: str, dtypes: Iterable[str]) -> StoredTensor:
        """A required tensor of rank 2."""
        tensor = self.part(name, dtypes)
        if len(tensor.shape) != 2:
            raise self.error("E-PACKED-SHAPE", f"tensor {name!r} is not a matrix", found=list(tensor.shape))
        return tensor

    def note(self, name: str, dtypes: Iterable[str]) -> np.ndarray:
        """The elements of a small tensor that describes others."""
        tensor = self.part(name, dtypes)
        if tensor.nbytes > LARGEST_NOTE:
            most = f"at most {LARGEST_NOTE:,} bytes"
            raise self.error(
                "E-PACKED-SHAPE", f"tensor {name!r} is too large", expected=most, found=f"{tensor.nbytes:,}"
            )
        return tensor.numpy()

    def number(self, name: str, dtypes: Iterable[str]) -> float:
        """The only element of a tensor."""
        found = self.note(name, dtypes)
        if found.size != 1:
            raise self.error("E-PACKED-SHAPE", f"tensor {name!r} is not a scalar", found=list(found.shape))
        return float(found.reshape(())[()])

    def stems(self, *endings: str) -> list[str]:
        """The tensor names that have one of the suffixes, without it, each once, in order."""
        return list(
            dict.fromkeys(
                name.removesuffix(ending) for name in self.tensors for ending in endings if name.endswith(ending)
            )
        )


E4M3_ROUNDING, E2M1_ROUNDING = 0.0625, 0.18
"""`Dequantized.rounding` of 8-bit and 4-bit floats."""


def rounding_of(bits: int) -> float:
    """`Dequantized.rounding` of evenly spaced codes: two halves of a step, since GPTQ trades some elements for
    others."""
    return 2 / ((1 << bits) - 1)


class Dequantized(Derived):
    """The rows of a weight that is stored as codes.

    Attributes:
        rounding: root mean square of the error of a row at most, for a largest magnitude of 1 in it; 0 if unknown.
    """

    rounding = 0.0


def computed(
    shape: tuple[int, ...],
    rows: Callable[[int, int], np.ndarray],
    parts: Iterable[StoredTensor],
    dtype: DType = F32,
    rounding: float = 0.0,
) -> StoredTensor:
    """A stored tensor whose rows are computed when they are read.

    Args:
        shape: at least one dimension; all but the last count rows.
        rows: gives rows ``[first, last)`` as an array ``[last - first, columns]`` of the dtype's numpy type.
        parts: the tensors that it reads.
        rounding: as of `Dequantized`.
    """
    import numpy

    columns, count = shape[-1], math.prod(shape[:-1])
    size = columns * dtype.bits // 8
    band = max(1, BAND // max(1, columns))

    def read(start: int, stop: int) -> memoryview:
        if start >= stop:
            return memoryview(b"")
        first, last = start // size, -(-stop // size)
        out = numpy.empty((last - first, columns), dtype.as_numpy())
        for begin in range(first, last, band):
            end = min(last, begin + band)
            out[begin - first : end - first] = rows(begin, end)
        return out.reshape(-1).view(numpy.uint8).data[start - first * size : stop - first * size]

    sequential = any(part.storage.sequential for part in parts)
    storage = Dequantized(count * size, max(1, size), read, sequential=sequential)
    storage.rounding = rounding
    return StoredTensor(dtype, shape, storage)
