"""Metadata edits: rewrites a model file with other keys and the same tensors."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsafeFileError, UnsupportedError, UsageError
from ...runtime.base.units import counted
from ...runtime.contract.format import FileLayout, Piece
from ...runtime.contract.metadata import FILES_KEY, TYPED_KEY, to_json
from ...runtime.ir.graph import Graph, Meta
from ...runtime.passes.precision.cast_weights import Cast
from ...runtime.tensor.dtype import F32, U8
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Held, Region
from ...runtime.tensor.stored_tensor import StoredTensor
from ..open import detect_format
from ..open.open_model import read_file
from ..translate.metadata_value import kind_of, readable
from . import pipeline
from .conversion_options import Options
from .plan import Plan, fingerprint, plan_graph

if TYPE_CHECKING:
    from ..console.progress import Progress


@dataclass(frozen=True)
class Change:
    """A metadata key with its value before and after; None is absent."""

    key: str
    old: Meta
    new: Meta

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "type": kind_of(self.old if self.new is None else self.new),
            "old": readable(self.old),
            "new": readable(self.new),
        }


def keys_of(graph: Graph) -> dict[str, Meta]:
    """All metadata of a model: its keys, and what its format says of a model in other ways."""
    known = {format.name: format for format in detect_format.formats()}.get(graph.format)
    return {**graph.metadata, **(known.model_keys(graph) if known is not None else {})}


def changes_of(graph: Graph, new: dict[str, Meta]) -> list[Change]:
    """The changes that setting the keys of `new` makes; None removes a key."""
    for key in new.keys() & {TYPED_KEY, FILES_KEY}:
        raise UsageError("E-META-KEY", None, f"{key!r} is reserved by candle-convert")
    known = keys_of(graph)
    return [
        Change(key, known.get(key), value) for key, value in new.items() if to_json(known.get(key)) != to_json(value)
    ]


def plan_rewrite(graph: Graph, path: str, output: str | None, changes: list[Change], options: Options) -> Plan:
    """The plan that writes `graph`, read from `path`, with changed metadata: in place, or to `output`.

    Raises:
        UnsafeFileError: in place, where the file has more than its reader takes up, or several files are one model.
        UnsupportedError: the format cannot hold the new values, or is only read.
    """
    format = detect_format.by_name(options.to or graph.format)
    if format.layout is None:
        why = f"{format.title} files are read-only: their metadata cannot be changed"
        raise UnsupportedError(
            "E-OUT-FORMAT", path, why, hint="candle-convert convert writes the model in another format"
        )
    for change in changes:
        if change.new is None:
            graph.metadata.pop(change.key, None)
        else:
            graph.metadata[change.key] = change.new
    options = dataclasses.replace(options, to=format.name)
    if format.edit is not None:
        return _plan_edit(graph, path, output, changes, options)
    _rehearse(graph, changes, options, format.suffixes[0])
    if output is not None:
        return plan_graph(graph, Path(output), options, [path])
    target = _only_file(graph, path)
    if graph.notes and not options.force:
        why = f"could lose information when rewritten: {graph.notes[0].message}"
        raise UnsafeFileError("E-META-PLACE", path, why, hint="Choose another output with -o, or use --force")
    made = plan_graph(
        graph, target.with_name(target.name + format.suffixes[0]), dataclasses.replace(options, force=True), [path]
    )
    made.files[:] = [dataclasses.replace(file, name=target.name) for file in made.files]
    return made


def _only_file(graph: Graph, path: str) -> Path:
    """The file that a model is; UnsafeFileError where it is several."""
    if len(graph.files) != 1:
        why = f"is a model of {counted(len(graph.files), 'file')}, which cannot be replaced atomically"
        raise UnsafeFileError("E-META-PLACE", path, why, hint="Choose the output with -o")
    return Path(graph.files[0])


def _plan_edit(graph: Graph, path: str, output: str | None, changes: list[Change], options: Options) -> Plan:
    """The plan that writes one file with other metadata and the bytes of the old one.

    Files with tensors are copied where the output is in another folder.
    """
    source = Source(_only_file(graph, path))
    format = detect_format.by_name(options.to or graph.format)
    target = Path(source.path) if output is None else _named(Path(output), Path(source.path))
    assert format.edit is not None
    files = [format.edit(source, graph, {change.key: change.new for change in changes}, target.name)]
    copied = graph.external_files if target.parent.resolve() != Path(source.path).parent.resolve() else []
    for other in copied:
        if Path(other).resolve().parent != Path(source.path).resolve().parent:
            why = f"has tensors in {other}, which is not in the same directory"
            hint = "Choose an output in the same folder, or change the model in place"
            raise UnsafeFileError("E-META-PLACE", path, why, hint=hint)
        held = Source(other)
        stored_tensor = StoredTensor(U8, (held.size,), Region(held, 0, held.size))
        files.append(FileLayout(Path(other).name, held.size, (Piece(0, stored_tensor),)))
    options = dataclasses.replace(options, force=options.force or output is None)
    attached = frozenset(file.name for file in files[1:])
    made = fingerprint(graph, files, options)
    folder, name, casts = target.parent, target.name, Cast(None, (), options.nan)
    return Plan([path], graph, graph.format, format, folder, name, files, attached, options, casts, made)


def _named(output: Path, source: Path) -> Path:
    """Path of a file whose output may be a folder."""
    return output / source.name if output.is_dir() else output


def _rehearse(graph: Graph, changes: list[Change], options: Options, suffix: str) -> None:
    """Write the metadata alone to a file, and see whether the changed keys are read back as they should be."""
    small = Graph(
        weights={"x": StoredTensor(F32, (1,), Held(bytes(4)))}, metadata=dict(graph.metadata), format=graph.format
    )
    with tempfile.TemporaryDirectory() as folder:
        made = plan_graph(small, Path(folder) / f"metadata{suffix}", Options(to=options.to, verify="none"))
        pipeline.execute(made)
        found = read_file(Path(folder) / made.files[0].name, options.read, options.to).metadata
    for change in changes:
        if to_json(found.get(change.key)) != to_json(change.new):
            what = "cannot do without" if change.new is None else f"cannot hold a {kind_of(change.new)} as"
            hint = "Try another --type, or another format with convert"
            raise UnsupportedError(
                "E-META-HOLD", None, f"{options.to} {what} the metadata key {change.key!r}", hint=hint
            )


def rewrite(plan: Plan, progress: Progress) -> pipeline.Report:
    """Carry out a plan; a file that is replaced keeps its permissions."""
    targets = [plan.folder / file.name for file in plan.files]
    modes = {target: os.stat(target).st_mode for target in targets if target.exists()}
    report = pipeline.execute(plan, progress)
    for target, mode in modes.items():
        os.chmod(target, mode & 0o7777)
    return report
