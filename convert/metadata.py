"""Metadata editing: values from text with a type, and a model file rewritten with other keys and the same tensors."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.dtype import DTYPES, F32, U8, of_numpy
from ..runtime.errors import UnsafeFileError, UnsupportedError, UsageError
from ..runtime.format import FileLayout, Piece
from ..runtime.graph import Graph, Meta
from ..runtime.metadata import FILES_KEY, TYPED_KEY, to_json
from ..runtime.passes.cast import Cast
from ..runtime.record import dataclass
from ..runtime.source import Source
from ..runtime.storage import Held, Region
from ..runtime.tensor import Tensor
from ..runtime.texts import Texts
from . import pipeline, recognise
from .opening import read_file
from .options import Options
from .plan import Plan, fingerprint, plan_graph

if TYPE_CHECKING:
    from .progress import Progress

SCALARS = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64")
TYPES = (*SCALARS, "bool", "str", "json")
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True)
class Change:
    """A metadata key with its value before and after; None is absent."""

    key: str
    old: Meta
    new: Meta

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "type": kind_of(self.old if self.new is None else self.new), "old": readable(self.old), "new": readable(self.new)}


def readable(value: Meta) -> Any:
    """A value as JSON for people and programs that know its type: numbers and lists, whole.

    Non-finite numbers are text, complex ones pairs, bytes base64.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, complex):
        return [readable(value.real), readable(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list | tuple) else value


def kind_of(value: Meta) -> str:
    """The name of a value's type, such as ``u32``, ``str`` or ``i32[]``."""
    import numpy

    if isinstance(value, numpy.ndarray | numpy.generic):
        name = of_numpy(value.dtype).name if value.dtype.kind in "biuf" else str(value.dtype)
        return name + "[]" * isinstance(value, numpy.ndarray)
    if isinstance(value, Texts) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return "str[]"
    plain = {str: "str", bool: "bool", int: "int", float: "float", bytes: "bytes", type(None): "none"}
    return plain.get(type(value), "json")


def typed(text: str, kind: str | None, old: Meta = None) -> Meta:
    """The value that `text` says, as the type `kind`, or as that of the `old` value, which it replaces.

    Args:
        kind: one of `TYPES`, with ``[]`` behind it for a JSON list of such values; None takes that of `old`, or str.
    """
    kind = kind or {"int": "i64", "float": "f64", "none": "str", "bytes": "str"}.get(kind_of(old), kind_of(old))
    base = kind.removesuffix("[]")
    if base not in TYPES or kind == "json[]":
        raise UsageError("E-META-TYPE", None, f"unknown metadata type {kind!r}", hint=f"Types: {', '.join(TYPES)}, and lists such as i32[]")
    try:
        if kind == "json":
            return json.loads(text, parse_constant=_no_constant)
        if base == kind:
            return _scalar(text, kind)
        items = json.loads(text, parse_constant=_no_constant)
        return _array(items, base)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        why = f"{text[:60]!r} is not a valid {kind}: {error}"
        raise UsageError("E-META-VALUE", None, why, hint="Choose another type with --type") from error


def _scalar(text: str, kind: str) -> Meta:
    if kind == "str":
        return text
    if kind == "bool":
        if text.lower() not in TRUTH:
            raise ValueError(f"one of {', '.join(TRUTH)} is needed")
        return TRUTH[text.lower()]
    value = float(text) if kind.startswith("f") else int(text, 0)
    return DTYPES[kind].as_numpy().type(value)


def _array(items: Any, base: str) -> Meta:
    import numpy

    wanted = {"str": str, "bool": bool}.get(base, (int, float) if base.startswith("f") else int)
    if not isinstance(items, list) or not all(isinstance(item, wanted) and (base == "bool") == isinstance(item, bool) for item in items):
        raise ValueError(f"a JSON list of {base} is needed")
    return items if base == "str" else numpy.array(items, DTYPES[base].as_numpy())


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def keys_of(graph: Graph) -> dict[str, Meta]:
    """All metadata of a model: its keys, and what its format says of a model in other ways."""
    known = {format.name: format for format in recognise.formats()}.get(graph.format)
    return {**graph.metadata, **(known.model_keys(graph) if known is not None else {})}


def changes_of(graph: Graph, new: dict[str, Meta]) -> list[Change]:
    """What setting the keys of `new` changes; None removes a key."""
    for key in new.keys() & {TYPED_KEY, FILES_KEY}:
        raise UsageError("E-META-KEY", None, f"{key!r} is a key that this program keeps for itself")
    known = keys_of(graph)
    return [Change(key, known.get(key), value) for key, value in new.items() if to_json(known.get(key)) != to_json(value)]


def plan_rewrite(graph: Graph, path: str, output: str | None, changes: list[Change], options: Options) -> Plan:
    """The plan that writes `graph`, read from `path`, with changed metadata: in place, or to `output`.

    Raises:
        UnsafeFileError: in place, where the file has more than its reader takes up, or several files are one model.
        UnsupportedError: the format cannot hold the new values, or is only read.
    """
    format = recognise.by_name(options.to or graph.format)
    if format.layout is None:
        why = f"{format.title} files are only read: their metadata cannot be changed"
        raise UnsupportedError("E-OUT-FORMAT", path, why, hint="candle-convert convert writes the model in another format")
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
        why = f"could lose something when it is rewritten: {graph.notes[0].message}"
        raise UnsafeFileError("E-META-PLACE", path, why, hint="Choose another output with -o, or use --force")
    made = plan_graph(graph, target.with_name(target.name + format.suffixes[0]), dataclasses.replace(options, force=True), [path])
    made.files[:] = [dataclasses.replace(file, name=target.name) for file in made.files]
    return made


def _only_file(graph: Graph, path: str) -> Path:
    """The file that a model is; UnsafeFileError where it is several."""
    if len(graph.files) != 1:
        why = f"is a model of {len(graph.files)} files, which are not replaced all at once"
        raise UnsafeFileError("E-META-PLACE", path, why, hint="Choose the output with -o")
    return Path(graph.files[0])


def _plan_edit(graph: Graph, path: str, output: str | None, changes: list[Change], options: Options) -> Plan:
    """The plan that writes one file with other metadata and the bytes of the old one.

    Files with tensors are copied where the output is in another folder.
    """
    source = Source(_only_file(graph, path))
    format = recognise.by_name(options.to or graph.format)
    target = Path(source.path) if output is None else _named(Path(output), Path(source.path))
    assert format.edit is not None
    files = [format.edit(source, graph, {change.key: change.new for change in changes}, target.name)]
    copied = graph.beside if target.parent.resolve() != Path(source.path).parent.resolve() else []
    for other in copied:
        if Path(other).resolve().parent != Path(source.path).resolve().parent:
            why = f"has tensors in {other}, which is not beside it"
            hint = "Choose an output in the same folder, or change the model in place"
            raise UnsafeFileError("E-META-PLACE", path, why, hint=hint)
        held = Source(other)
        whole = Tensor(U8, (held.size,), Region(held, 0, held.size))
        files.append(FileLayout(Path(other).name, held.size, (Piece(0, whole),)))
    options = dataclasses.replace(options, force=options.force or output is None)
    attached = frozenset(file.name for file in files[1:])
    made = fingerprint(graph, files, options)
    folder, name, casts = target.parent, target.name, Cast(None, (), options.nan)
    return Plan([path], graph, graph.format, format, folder, name, files, attached, options, casts, made)


def _named(output: Path, source: Path) -> Path:
    """Where a file goes whose output may be a folder."""
    return output / source.name if output.is_dir() else output


def _rehearse(graph: Graph, changes: list[Change], options: Options, suffix: str) -> None:
    """Write the metadata alone to a file, and see whether the changed keys are read back as they should be."""
    small = Graph(weights={"x": Tensor(F32, (1,), Held(bytes(4)))}, metadata=dict(graph.metadata), format=graph.format)
    with tempfile.TemporaryDirectory() as folder:
        made = plan_graph(small, Path(folder) / f"metadata{suffix}", Options(to=options.to, verify="none"))
        pipeline.execute(made)
        found = read_file(Path(folder) / made.files[0].name, options.read, options.to).metadata
    for change in changes:
        if to_json(found.get(change.key)) != to_json(change.new):
            what = "cannot do without" if change.new is None else f"cannot hold a {kind_of(change.new)} as"
            hint = "Try another --type, or another format with convert"
            raise UnsupportedError("E-META-HOLD", None, f"{options.to} {what} the metadata key {change.key!r}", hint=hint)


def rewrite(plan: Plan, progress: Progress) -> pipeline.Report:
    """Carry out a plan; a file that is replaced keeps its permissions."""
    targets = [plan.folder / file.name for file in plan.files]
    modes = {target: os.stat(target).st_mode for target in targets if target.exists()}
    report = pipeline.execute(plan, progress)
    for target, mode in modes.items():
        os.chmod(target, mode & 0o7777)
    return report
