"""The npy format: a header that is a Python literal, then the elements of one array.

Source: numpy.lib.format, versions 1.0 to 3.0. ml_dtypes types have no codes there: numpy writes them as untyped bytes
("void"), except float8_e5m2, which is written as ``f1``.
"""

from __future__ import annotations

import math
import re
from typing import NoReturn

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsafeFileError, UnsupportedError, UsageError
from ...runtime.base.units import counted
from ...runtime.tensor.dtype import BF16, DTYPES, ELEMENT_TYPES, DType, plain_name
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Derived, Region, Storage, Stream
from ...runtime.tensor.stored_tensor import StoredTensor
from ...runtime.tensor.strided import strided, swapped
from .spool import Spool

MAGIC = b"\x93NUMPY"
LENGTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
"""Bytes of the header's length field by version."""
FIXED_LENGTH = 10
"""Bytes before the text of a version 1.0 header."""
MAX_HEADER = 1 << 16
FIRST_READ = 128
"""Bytes read first: enough for the header of most arrays."""
MAX_DIMS = 64
ALIGNMENT = 64
GROWTH = 21
"""Digits that numpy reserves, so that the first dimension can grow in place."""

LETTERS = {"float": "f", "int": "i", "uint": "u", "bool": "b", "complex": "c"}
CODES = {
    f"{LETTERS[dtype.kind]}{dtype.bits // 8}": dtype
    for dtype in ELEMENT_TYPES
    if dtype.bits >= 8 and dtype.numpy in (dtype.kind, f"{dtype.kind}{dtype.bits}")
}
NAMES = {dtype: code for code, dtype in CODES.items()}
VOID_TYPES = frozenset(
    dtype for dtype in ELEMENT_TYPES if dtype.bits >= 8 and dtype.numpy is not None and dtype not in NAMES
)
"""The types of ml_dtypes, which are written as void."""
READABLE = {**CODES, "f1": DTYPES["f8_e5m2"]}
NOT_NUMERIC = {
    "S": "byte strings",
    "a": "byte strings",
    "U": "text",
    "T": "text",
    "M": "dates",
    "m": "time spans",
    "V": "structures without a type",
    "f": "floats of an unusual size",
    "c": "complex numbers of an unusual size",
}

_ITEM = re.compile(
    r"""\s*(?P<q>['"])(?P<key>\w{1,40})(?P=q)\s*:\s*
    (?:(?P<p>['"])(?P<text>[^'"\\]*)(?P=p)|(?P<flag>True|False)|\((?P<lengths>[^()]*)\)|(?P<other>[\[(]))""",
    re.VERBOSE,
)
_VALUES = {"descr": "text", "fortran_order": "flag", "shape": "lengths"}
_COMMA = re.compile(r"\s*,\s*")
_LENGTH = re.compile(r"\s*(0|[1-9][0-9]{0,18})L?\s*")
_CODE = re.compile(r"(?P<order>[<>|=]?)(?P<kind>[A-Za-z?])(?P<size>[0-9]{0,9})(?P<unit>\[[^\]]*\])?")
_OBJECT = re.compile(r"""['"][<>|=]?(O[0-9]*|object\w*)['"]""")


RETRY_HINT = "Download the file again, or save it again with numpy"


@dataclass(frozen=True)
class ArrayLocation:
    """Location of an array for error messages: the file, ``entry 'x'``, and its offset."""

    source: Source
    what: str
    at: int

    def malformed(
        self, code: str, why: str, *, expected: object = None, found: object = None, hint: str = RETRY_HINT
    ) -> FormatError:
        """A FormatError about the array."""
        return FormatError(
            code, self.source.path, f"{self.what} {why}", at=self.at, expected=expected, found=found, hint=hint
        )


@dataclass(frozen=True)
class Header:
    """An array's dtype and shape, and the length of its header."""

    dtype: DType
    shape: tuple[int, ...]
    fortran: bool
    swapped: bool
    length: int


def read_header(
    storage: Region | Stream, place: ArrayLocation, named: str | None = None, void: str | None = None
) -> Header:
    """The header at the start of `storage`, whose data must fill the rest of it.

    Args:
        named: dtype stored next to the array, for void elements.
        void: dtype of void elements without one.

    Raises:
        FormatError: not a header that numpy writes, or data of another size.
        UnsafeFileError: the array holds Python objects, that is, a pickle.
        UnsupportedError: its elements are not numeric, or void of unknown type.
    """
    text, length = _header_text(storage, place)
    code, fortran, shape = _fields(text, place)
    dtype, big = _dtype(code, place, named, void)
    need, found = math.prod(shape) * dtype.bits // 8, storage.nbytes - length
    if need != found:
        hint = "The file is truncated" if found < need else "Check that the file holds one array"
        raise place.malformed(
            "E-NPZ-SIZE",
            f"of {dtype.name} {list(shape)} does not have the bytes that it needs",
            expected=f"{need:,}",
            found=f"{found:,}",
            hint=hint,
        )
    return Header(dtype, shape, fortran, big, length)


def tensor(storage: Region | Stream, header: Header) -> StoredTensor:
    """The array after `header` in `storage`, in C order and little-endian."""
    nbytes, size = storage.nbytes - header.length, header.dtype.bits // 8
    transposed = header.fortran and nbytes > 0 and sum(length > 1 for length in header.shape) > 1
    data: Storage
    if isinstance(storage, Region):
        data = Region(storage.source, storage.offset + header.length, nbytes)
    else:
        whole: Storage = Spool(storage) if transposed else storage
        base = header.length
        data = Derived(
            nbytes, 1, lambda start, stop: whole.read(base + start, base + stop), sequential=whole.sequential
        )
    if header.swapped:
        data = swapped(data, size // 2 if header.dtype.kind == "complex" else size)
    if transposed:
        strides = tuple(math.prod(header.shape[:axis]) for axis in range(len(header.shape)))
        data = strided(data, size, header.shape, strides)
    return StoredTensor(header.dtype, header.shape, data)


def header_bytes(dtype: DType, shape: tuple[int, ...]) -> bytes:
    """The version 1.0 header that numpy writes for a C-order array, padded to align the data."""
    code = NAMES.get(dtype, f"V{dtype.bits // 8}")
    order = "|" if dtype in NAMES and dtype.bits == 8 else "<"
    text = f"{{'descr': '{order}{code}', 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (GROWTH - len(str(shape[0]))) if shape else ""
    length = len(text) + 1 + -(FIXED_LENGTH + len(text) + 1) % ALIGNMENT
    return MAGIC + b"\1\0" + length.to_bytes(2, "little") + text.encode() + b" " * (length - len(text) - 1) + b"\n"


def _header_text(storage: Region | Stream, place: ArrayLocation) -> tuple[str, int]:
    """The header's text, and the offset after it."""
    head = bytes(storage.read(0, min(storage.nbytes, FIRST_READ)))
    if not head.startswith(MAGIC) or len(head) < len(MAGIC) + 2:
        raise place.malformed(
            "E-NPZ-MAGIC", "does not begin as an npy file", expected=repr(MAGIC), found=repr(head[: len(MAGIC)])
        )
    version = (head[6], head[7])
    if version not in LENGTHS:
        why = f"{place.what} is of npy version {version[0]}.{version[1]}"
        raise UnsupportedError(
            "E-NPZ-VERSION",
            place.source.path,
            why,
            at=place.at,
            expected="1.0, 2.0 or 3.0",
            hint="Save it again with numpy",
        )
    begin = 8 + LENGTHS[version]
    length = int.from_bytes(head[8:begin], "little")
    if length > min(MAX_HEADER, storage.nbytes - begin):
        raise place.malformed(
            "E-NPZ-HEADER-LENGTH",
            f"has {counted(storage.nbytes, 'byte')} and a header of {length:,}",
            expected=f"at most {MAX_HEADER:,}",
            hint="The file is truncated, or was not written by numpy",
        )
    place.source.budget.charge(length, f"the header of {place.what}", at=place.at)
    if begin + length > len(head):
        head += storage.read(len(head), begin + length)
    return head[begin : begin + length].decode("latin-1"), begin + length


def _fields(text: str, place: ArrayLocation) -> tuple[str, bool, tuple[int, ...]]:
    """The three values of the literal ``{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }``, in any order."""
    body = text.strip()
    items: dict[str, re.Match[str]] = {}
    position = 1
    while body[:1] == "{" and (item := _ITEM.match(body, position)) is not None:
        if item["other"] is not None and item["key"] == "descr":
            _refuse_structure(body, place)
        if item["key"] in items:
            raise place.malformed("E-NPZ-HEADER", f"has two values of {item['key']!r} in its header")
        items[item["key"]] = item
        position = item.end()
        comma = _COMMA.match(body, position)
        if comma is None:
            break
        position = comma.end()
    code, flag, lengths = (items[key][group] if key in items else None for key, group in _VALUES.items())
    if body[position:].strip() != "}" or len(items) != len(_VALUES) or code is None or flag is None or lengths is None:
        raise place.malformed(
            "E-NPZ-HEADER",
            "has a header that is not a plain dictionary of descr, fortran_order and shape",
            found=repr(body[:80]),
        )
    return code, flag == "True", _shape(lengths, place)


def _shape(text: str, place: ArrayLocation) -> tuple[int, ...]:
    parts = text.split(",")
    if len(parts) > MAX_DIMS + 1:
        raise place.malformed("E-NPZ-SHAPE", f"has over {MAX_DIMS} dimensions")
    found = [_LENGTH.fullmatch(part) for part in (parts if parts[-1].strip() else parts[:-1])]
    if not all(found) or (len(parts) == 1 and text.strip()):
        raise place.malformed(
            "E-NPZ-SHAPE", "has a shape that is not a tuple of non-negative integers", found=f"({text[:80]})"
        )
    shape = tuple(int(match[1]) for match in found if match is not None)
    if len(shape) > MAX_DIMS or math.prod(length for length in shape if length) >= 1 << 63:
        raise place.malformed(
            "E-NPZ-SHAPE", f"has {counted(len(shape), 'dimension')} of too many elements", found=f"({text[:80]})"
        )
    return shape


def _dtype(text: str, place: ArrayLocation, named: str | None, void: str | None) -> tuple[DType, bool]:
    """The dtype of a code such as ``<f4``, and whether it is big-endian."""
    match = _CODE.fullmatch(text)
    if match is None or match["kind"] == "O":
        _refuse_object(f"'{text}'", place)
        raise place.malformed("E-NPZ-HEADER", f"has the dtype {text[:40]!r}, which is not a numpy type code")
    code = match["kind"] + match["size"]
    dtype = READABLE.get(code)
    if code == "V2":
        dtype = BF16
    elif code == "V1":
        dtype = _void(place, named, void)
    if dtype is None or match["unit"]:
        what = NOT_NUMERIC.get(match["kind"], "elements of an unknown type")
        raise _unsupported(place, f"holds {what} ({text})", "Save it again as a numeric array, or leave it out")
    return dtype, match["order"] == ">" and dtype.bits > 8


def _void(place: ArrayLocation, named: str | None, void: str | None) -> DType:
    one_byte = {dtype.name: dtype for dtype in VOID_TYPES if dtype.bits == 8}
    if named in one_byte:
        return one_byte[named]
    if void is None:
        raise _unsupported(
            place, "holds void elements of unknown type", f"Use --npz-void {'|'.join(sorted(one_byte))}", "E-NPZ-VOID"
        )
    void = plain_name(void)
    if void not in one_byte:
        hint = f"One of {', '.join(sorted(one_byte))}"
        raise UsageError(
            "E-NPZ-VOID", place.source.path, f"{void} is not a one-byte type that numpy writes as void", hint=hint
        )
    return one_byte[void]


def _refuse_structure(text: str, place: ArrayLocation) -> NoReturn:
    _refuse_object(text, place)
    raise _unsupported(place, "holds structures", "Save each field as an array of its own")


def _refuse_object(text: str, place: ArrayLocation) -> None:
    if _OBJECT.search(text):
        hint = "Save it again as a numeric array"
        why = f"{place.what} holds Python objects, which are a pickle"
        raise UnsafeFileError("E-NPZ-PICKLE", place.source.path, why, at=place.at, hint=hint)


def _unsupported(place: ArrayLocation, why: str, hint: str, code: str = "E-NPZ-DTYPE") -> UnsupportedError:
    return UnsupportedError(code, place.source.path, f"{place.what} {why}", at=place.at, hint=hint)
