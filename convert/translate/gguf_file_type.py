"""llama.cpp's file types: command-line names, numbers in general.file_type, and the type of most tensors.

Source: llama.h, llama-quant.cpp and the quantize tool of llama.cpp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...runtime.base.dataclass import dataclass
from ...runtime.tensor.dtype import DType, plain_name

FILE_TYPE_KEY = "general.file_type"
VERSION_KEY = "general.quantization_version"
QUANTIZATION_VERSION = 2
GUESSED = 1024
"""Added to the number of a file type that was guessed from the tensors."""
COPY = "copy"


@dataclass(frozen=True)
class FileType:
    """A file type.

    Attributes:
        name: in lower case.
        number: in general.file_type.
        base: the dtype of most tensors.
        title: what it is.
        listed: whether llama-quantize offers it.
    """

    name: str
    number: int
    base: str
    title: str
    listed: bool = True


FILE_TYPES = tuple(
    FileType(*row)
    for row in (
        ("f32", 0, "f32", "single precision"),
        ("f16", 1, "f16", "half precision"),
        ("q4_0", 2, "q4_0", "4 bits, one scale"),
        ("q4_1", 3, "q4_1", "4 bits, scale and minimum"),
        ("q8_0", 7, "q8_0", "8 bits, one scale"),
        ("q5_0", 8, "q5_0", "5 bits, one scale"),
        ("q5_1", 9, "q5_1", "5 bits, scale and minimum"),
        ("q2_k", 10, "q2_k", "2 bits, many tensors in 3 and 4"),
        ("q3_k_s", 11, "q3_k", "3 bits"),
        ("q3_k_m", 12, "q3_k", "3 bits, attention and FFN outputs in 4 and 5"),
        ("q3_k_l", 13, "q3_k", "3 bits, attention and FFN outputs in 5"),
        ("q4_k_s", 14, "q4_k", "4 bits, first layers in 5"),
        ("q4_k_m", 15, "q4_k", "4 bits, half of attention values and FFN outputs in 6"),
        ("q5_k_s", 16, "q5_k", "5 bits"),
        ("q5_k_m", 17, "q5_k", "5 bits, half of attention values and FFN outputs in 6"),
        ("q6_k", 18, "q6_k", "6 bits"),
        ("iq2_xxs", 19, "iq2_xxs", "2.1 bits by lattice; needs an importance matrix"),
        ("iq2_xs", 20, "iq2_xs", "2.3 bits by lattice; needs an importance matrix"),
        ("q2_k_s", 21, "q2_k", "2 bits; needs an importance matrix"),
        ("iq3_xs", 22, "iq3_s", "3.3 bits by lattice; needs an importance matrix"),
        ("iq3_xxs", 23, "iq3_xxs", "3.1 bits by lattice; needs an importance matrix"),
        ("iq1_s", 24, "iq1_s", "1.6 bits by lattice; needs an importance matrix"),
        ("iq4_nl", 25, "iq4_nl", "4.5 bits, uneven steps"),
        ("iq3_s", 26, "iq3_s", "3.4 bits by lattice"),
        ("iq3_m", 27, "iq3_s", "3.4 bits by lattice, some in 4"),
        ("iq2_s", 28, "iq2_xs", "2.5 bits by lattice; needs an importance matrix"),
        ("iq2_m", 29, "iq2_s", "2.7 bits by lattice; needs an importance matrix"),
        ("iq4_xs", 30, "iq4_xs", "4.25 bits, uneven steps"),
        ("iq1_m", 31, "iq1_m", "1.75 bits by lattice; needs an importance matrix"),
        ("bf16", 32, "bf16", "half the bits of single precision, with its range"),
        ("tq1_0", 36, "tq1_0", "ternary, 1.7 bits"),
        ("tq2_0", 37, "tq2_0", "ternary, 2.1 bits"),
        ("mxfp4_moe", 38, "mxfp4", "experts in MXFP4, the rest in Q8_0"),
        ("nvfp4", 39, "nvfp4", "4-bit floats, scales of 8 bits", False),
        ("q1_0", 40, "q1_0", "signs and a scale"),
        ("q2_0", 41, "q2_0", "2 bits, one scale for 64"),
    )
)
ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}
BY_NAME = {each.name: each for each in FILE_TYPES}
BY_NUMBER = {each.number: each for each in FILE_TYPES}
BY_TYPE = {
    **{each.base: each for each in FILE_TYPES if each.name == each.base},
    **{base: BY_NAME[name] for base, name in ALIASES.items()},
    "iq3_s": BY_NAME["iq3_s"],
    "iq2_s": BY_NAME["iq2_s"],
}
"""The file type that stands for a file mostly of one type."""


def of_text(text: str) -> FileType | None:
    """The file type of a name in any case, or of a number; None for anything else."""
    name = plain_name(text)
    if name.isascii() and name.isdigit():
        found = BY_NUMBER.get(int(name)) if len(name) < 9 else None
        return found if found is not None and found.listed else None
    return BY_NAME.get(ALIASES.get(name, name))


def guessed(dtypes: Iterable[DType]) -> int:
    """The file type's number of tensors of these types, by the most frequent one (of equally frequent ones the first to
    get there)."""
    counts: Counter[str] = Counter()
    best = "f32"
    for dtype in dtypes:
        counts[dtype.name] += 1
        if counts[dtype.name] > counts.get(best, 0):
            best = dtype.name
    return BY_TYPE[best].number if best in BY_TYPE else 0
