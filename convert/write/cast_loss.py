"""Losses from casting weights to narrower dtypes: notes, or an error if a tensor is spoilt."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.base.errors import UnsafeFileError
from ...runtime.base.units import counted
from ...runtime.ir.graph import Note
from ...runtime.passes.precision.cast_weights import Audit
from ...runtime.passes.quantize.block_weights import BlockAudit
from .staging import Staging

SHARE = 0.001
"""The share of a tensor's values beyond the range of its new dtype from which on the conversion is refused; of values
that become zero, reported."""
NAMED = 5


def follow(audits: Sequence[Audit | BlockAudit], staging: Staging) -> None:
    """Keep what audits meet in the journal, so that a run that goes on knows of the values that an earlier one
    wrote."""
    staging.state = lambda: {str(number): state for number, audit in enumerate(audits) if (state := audit.state())}


def resume(audits: Sequence[Audit | BlockAudit], staging: Staging) -> None:
    """Give audits what an earlier run met."""
    found = staging.restored
    for number, state in found.items() if isinstance(found, dict) else ():
        audits[int(number)].restore(state)


def refuse_overflow(audits: Sequence[Audit], allowed: bool) -> None:
    """Raise UnsafeFileError where more than `SHARE` of a tensor's values are beyond the range of its new dtype, unless
    that is allowed."""
    spoilt = [audit for audit in audits if audit.overflows > SHARE * audit.count]
    if spoilt and not allowed:
        shown = "; ".join(
            f"{audit.tensor!r}: {audit.overflows:,} of {counted(audit.count, 'value')} exceed {audit.dtype}"
            for audit in spoilt[:NAMED]
        )
        more = f"; {len(spoilt) - NAMED} more tensors" if len(spoilt) > NAMED else ""
        hint = (
            "Use --dtype bf16, which has the range of f32, --tensor-type 'RE=f32' for these tensors, "
            "or --allow-overflow"
        )
        raise UnsafeFileError("E-CAST-OVERFLOW", None, f"{shown}{more}", hint=hint)


def notes(audits: Sequence[Audit]) -> list[Note]:
    """Warnings about NaN that was kept, values out of range, and many values that became zero."""
    found = []
    for audit in audits:
        if audit.nans and audit.nan == "warn":
            found.append(Note("W-NAN", audit.tensor, f"{audit.nans:,} NaN values were kept"))
        if audit.overflows:
            found.append(
                Note(
                    "W-OVERFLOW",
                    audit.tensor,
                    f"{audit.overflows:,} of {counted(audit.count, 'value')} exceed the range of {audit.dtype}",
                )
            )
        if audit.underflows > SHARE * audit.count:
            why = (
                f"{audit.underflows:,} of "
                f"{counted(audit.count, 'value', verb='is')} too small for {audit.dtype} and became 0"
            )
            found.append(Note("W-UNDERFLOW", audit.tensor, why))
    return found
