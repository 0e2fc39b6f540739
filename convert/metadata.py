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

from ..runtime.dtype import DTYPES, F32, of_numpy
from ..runtime.errors import UnsafeFileError, UnsupportedError, UsageError
from ..runtime.graph import Graph, Meta
from ..runtime.metadata import FILES_KEY, TYPED_KEY, to_json
from ..runtime.record import dataclass
from ..runtime.storage import Held
from ..runtime.tensor import Tensor
from ..runtime.texts import Texts
from . import pipeline, recognise
from .opening import read_file
from .options import Options
from .plan import Plan, plan_graph

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
    """A value as JSON for people and programs that know its type: numbers and lists, non-finite numbers as text, bytes as base64."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
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
        raise UsageError("E-META-TYPE", None, f"there is no metadata type {kind!r}", hint=f"Types: {', '.join(TYPES)}, and lists such as i32[]")
    try:
        if kind == "json":
            return json.loads(text, parse_constant=_no_constant)
        if base == kind:
            return _scalar(text, kind)
        items = json.loads(text, parse_constant=_no_constant)
        return _array(items, base)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError("E-META-VALUE", None, f"{text[:60]!r} is no {kind}: {error}", hint="Say the type with --type") from error


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


def changes_of(graph: Graph, new: dict[str, Meta]) -> list[Change]:
    """What setting the keys of `new` changes; None removes a key."""
    for key in new.keys() & {TYPED_KEY, FILES_KEY}:
        raise UsageError("E-META-KEY", None, f"{key!r} is a key that this program keeps for itself")
    return [Change(key, graph.metadata.get(key), value) for key, value in new.items() if to_json(graph.metadata.get(key)) != to_json(value)]


def plan_rewrite(graph: Graph, path: str, output: str | None, changes: list[Change], options: Options) -> Plan:
    """The plan that writes `graph`, read from `path`, with changed metadata: in place, or to `output`.

    Raises:
        UnsafeFileError: in place, where the file has more than its reader takes up, or several files are one model.
        UnsupportedError: the format cannot hold the new values.
    """
    format = recognise.by_name(options.to or graph.format)
    for change in changes:
        if change.new is None:
            graph.metadata.pop(change.key, None)
        else:
            graph.metadata[change.key] = change.new
    options = dataclasses.replace(options, to=format.name)
    if format.layout is not None:
        _rehearse(graph, changes, options, format.suffixes[0])
    if output is not None:
        return plan_graph(graph, Path(output), options, [path])
    target = Path(path)
    if len(graph.files) != 1 or not target.is_file():
        raise UnsafeFileError("E-META-PLACE", path, f"is a model of {len(graph.files)} files", hint="Name the output with -o")
    if graph.notes and not options.force:
        why = f"could lose something when it is rewritten: {graph.notes[0].message}"
        raise UnsafeFileError("E-META-PLACE", path, why, hint="Name another output with -o, or say --force")
    made = plan_graph(graph, target.with_name(target.name + format.suffixes[0]), dataclasses.replace(options, force=True), [path])
    made.files[:] = [dataclasses.replace(file, name=target.name) for file in made.files]
    return made


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
