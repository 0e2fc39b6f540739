"""Quantization tables: tensors by rule and type, with bits, bytes and expected errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.passes.quantize.block_weights import ErrorStatistics
from ...runtime.tensor.element_packing import nbytes
from ..console.output import aligned, human_size
from .recipe.choose_type import Choice


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        share: of all parameters.
        bits: a weight.
        snr: signal to noise in decibels, None where it is not known or nothing changes.
        fallback: whether the type replaces one that the rows cannot hold.
    """

    rule: str
    type: str
    tensors: int
    share: float
    bits: float
    nbytes: int
    snr: float | None
    fallback: bool


COLUMNS = ("size", "bpw", "type", "tensors", "params", "SNR dB", "rule")


def text(choices: Sequence[Choice], errors: Mapping[str, ErrorStatistics]) -> list[str]:
    """The table and its total as lines."""
    cells = [
        (
            human_size(row.nbytes), f"{row.bits:.2f}", row.type + " ⚠" * row.fallback, row.tensors, f"{row.share:.1%}",
            "" if row.snr is None else f"{row.snr:.1f}", row.rule,
        )
        for row in rows(choices, errors)
    ]  # fmt: skip
    whole = total(choices)
    before = sum(
        choice.weight.dtype.block_nbytes * math.prod(choice.weight.shape) // choice.weight.dtype.block
        for choice in choices
    )
    smaller = f" ({before / whole.nbytes:.1f}x smaller)" if whole.nbytes and before > whole.nbytes else ""
    return [
        *aligned(COLUMNS, cells, right=(0, 1, 3, 4, 5)),
        f"total {whole.bits:.2f} bpw {human_size(whole.nbytes)}{smaller}",
    ]


def rows(choices: Sequence[Choice], errors: Mapping[str, ErrorStatistics]) -> list[Row]:
    """Lines in the order in which rules first decide, those with most parameters first among one rule."""
    groups: dict[tuple[str, str, bool], list[Choice]] = {}
    for choice in choices:
        groups.setdefault((_label(choice), choice.type_name, choice.fallback), []).append(choice)
    whole = max(1, _count(choices))
    found = [_row(key, group, whole, errors) for key, group in groups.items()]
    return sorted(found, key=lambda row: -row.share)


def total(choices: Sequence[Choice]) -> Row:
    """All tensors as one line."""
    return _row(("total", "", False), choices, max(1, _count(choices)), {})


def _label(choice: Choice) -> str:
    return (
        f"{choice.reason} (columns {choice.weight.columns} % {choice.wanted.block} ≠ 0)"
        if choice.fallback
        else choice.reason
    )


def _row(key: tuple[str, str, bool], group: Sequence[Choice], whole: int, errors: Mapping[str, ErrorStatistics]) -> Row:
    count = _count(group)
    size = sum(_nbytes(choice) for choice in group)
    merged = ErrorStatistics()
    for choice in group:
        if choice.weight.name in errors:
            merged.merge(errors[choice.weight.name])
    rule, dtype, fallback = key
    return Row(
        rule,
        dtype,
        len(group),
        count / whole,
        8 * size / max(1, count),
        size,
        _finite(merged.snr) if merged.count else None,
        fallback,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _count(choices: Iterable[Choice]) -> int:
    return sum(math.prod(choice.weight.shape) for choice in choices)


def _nbytes(choice: Choice) -> int:
    size = choice.packed_nbytes or nbytes(choice.dtype, choice.weight.shape)
    assert size is not None
    return size


def tensors_json(choices: Sequence[Choice], errors: Mapping[str, ErrorStatistics]) -> dict[str, dict[str, Any]]:
    """For each tensor what decided, the types before and after, and its errors where they are known."""
    found: dict[str, dict[str, Any]] = {}
    for choice in choices:
        entry: dict[str, Any] = {"from": choice.weight.dtype.name, "type": choice.type_name, "rule": choice.reason}
        if choice.fallback:
            entry["fallback_for"] = choice.wanted.name
        measured = errors.get(choice.weight.name)
        if measured is not None:
            entry |= {
                "rmse": measured.rmse,
                "max_error": measured.largest,
                "snr_db": _finite(measured.snr),
                "measured": measured.count,
            }
        found[choice.weight.name] = entry
    return found
