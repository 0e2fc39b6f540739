"""Conversion pipeline: writes the files of a plan, reads them back, compares and renames them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, FileAccessError, LimitError, UnsafeFileError
from ...runtime.base.units import counted, human_size
from ...runtime.ir.graph import Note
from ..console.atomic_replace import refuse_existing
from ..console.interrupt import too_late
from ..console.output import current
from ..console.progress import NoProgress, Progress
from ..open.shard_set import is_numbered, superseded
from . import cast_loss
from .conversion_options import Options
from .plan import Plan, plan
from .read_back import verify
from .staging import Staging
from .write import Crew, write


def convert(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: Options | None = None,
    progress: Progress | None = None,
) -> Report:
    """Convert model files, directories or hub addresses into `output`; see `Options`."""
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    return execute(plan(paths, output, options or Options()), progress)


@dataclass
class Report:
    """The result of a conversion.

    Attributes:
        overflows: values that are beyond the range of the dtype they were cast to.
        kept: bytes of an interrupted run that were not written again; None without ``--resume``.
    """

    inputs: list[str]
    outputs: list[str]
    tensors: int
    nbytes: int
    verified: int
    notes: list[Note] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    overflows: int = 0
    kept: int | None = None

    def __repr__(self) -> str:
        made = self.outputs[0] if len(self.outputs) == 1 else counted(len(self.outputs), "file")
        notes = f", {counted(len(self.notes), 'note')}" if self.notes else ""
        return (
            f"<{type(self).__name__} {made}: {counted(self.tensors, 'tensor')}, {human_size(self.nbytes)}, "
            f"{self.verified} verified{notes}>"
        )


def execute(plan: Plan, progress: Progress | None = None, crew: Crew | None = None) -> Report:
    """Write, verify and publish a plan's files.

    Args:
        crew: other processes that write and compare tensors; None for threads of this one.
    """
    progress = progress or NoProgress()
    _check_room(plan)
    staging = Staging(plan.folder, plan.name, plan.files, plan.fingerprint)
    audits = plan.casts.audits
    clock = [time.perf_counter()]
    try:
        progress.phase("writing")
        cast_loss.follow(plan.audits, staging)
        kept = write(staging, plan.threads, progress, resume=plan.options.resume, chunk=plan.chunk, crew=crew)
        cast_loss.resume(plan.audits, staging)
        cast_loss.refuse_overflow(audits, plan.options.allow_overflow)
        notes, overflows = cast_loss.notes(audits), sum(audit.overflows for audit in audits)
        clock.append(time.perf_counter())
        progress.phase("verifying")
        verified = verify(plan, staging, progress, crew)
        clock.append(time.perf_counter())
        with too_late():
            staging.publish(lambda: _superseded(plan))
            current().complete = True
    except Error as error:
        if isinstance(error, LimitError | FileAccessError):
            staging.close()
        elif error.code not in ("E-OUT-BUSY", "E-OUT-LINK"):
            staging.discard()
        raise
    except BaseException:
        staging.close()
        raise
    seconds = {"write": clock[1] - clock[0], "verify": clock[2] - clock[1]}
    outputs = [str(staging.final(file)) for file in plan.files]
    return Report(
        plan.inputs,
        outputs,
        sum(len(part.graph) for part in plan.parts) or len(plan.graph),
        plan.nbytes,
        verified,
        [*plan.graph.notes, *notes],
        seconds,
        overflows,
        kept if plan.options.resume else None,
    )


def _is_input(path: Path, plan: Plan) -> bool:
    """Whether a path leads to one of the files that are read."""
    return path.exists() and any(
        os.path.samefile(path, file) for file in (*plan.graph.files, *plan.graph.external_files) if os.path.exists(file)
    )


def _superseded(plan: Plan) -> list[Path]:
    """Files of an earlier output in another number of shards, which the new one replaces as a whole.

    Raises UnsafeFileError where nothing is to be replaced, or where shards among them are read. A whole file that
    is read stays next to shards that are made of it, and shards that are read next to a whole file.
    """
    names = [file.name for file in plan.files]
    found = superseded(plan.folder, names)
    read = [path for path in found if _is_input(path, plan)]
    if any(is_numbered(path.name) for path in read) and any(map(is_numbered, names)):
        why = "is one of the inputs, of which the output would be a second set of shards"
        raise UnsafeFileError("E-OUT-INPUT", read[0], why, hint="Choose another output")
    if read or not found:
        return []
    if plan.options.force is False:
        what = f"already exists, in {counted(len(found), 'file')} of another number of shards"
        raise UnsafeFileError("E-OUT-EXISTS", found[0], what, hint="Use --force (force=True in Python) to replace it")
    return found


def _check_room(plan: Plan) -> None:
    force = plan.options.force
    for path in [] if force else [plan.folder / file.name for file in plan.files]:
        refuse_existing(path, force=force is None and not _is_input(path, plan))
    _superseded(plan)
    if not plan.options.resume and plan.nbytes > plan.disk_free:
        why = f"{counted(plan.nbytes, 'byte', verb='is')} to be written, {plan.disk_free:,} are free"
        raise LimitError("E-OUT-FULL", plan.folder, why, hint="Free some space")
