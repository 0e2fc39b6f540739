"""Model check: every rule of a file's format, every byte of its tensors, and suspicious values."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from ...models.tokenizer.readers.locate import NO_TOKENIZER, first_of, read
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, UnsupportedError
from ...runtime.base.units import counted
from ...runtime.base.untrusted.json import parse
from ...runtime.contract.architecture import FEATURE_EXTRACTION, TEXT_CLASSIFICATION, TEXT_GENERATION, TEXT_RANKING
from ...runtime.contract.format import ReadOptions
from ...runtime.contract.weight_binding import find_architecture
from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.tensor.element_packing import unpack
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Region
from ...runtime.tensor.stored_tensor import StoredTensor
from ..console.progress import NoProgress, Progress
from ..load.recognise import stated
from ..open import prequantized
from ..open.detect_format import detect, refuse_unwritten
from ..open.model_directory import INDEX
from ..open.model_files import MODEL_INDEX
from ..open.open_model import networks, open_model
from .finding import Located, WatchedSource, counts, table

TELLING = 1024
"""Bytes from which on it is worth saying that two tensors hold the same values."""
NAMED = 5
NOT_JSON = "E-JSON"
MERGES = "merges.txt"
VOCABULARIES = ("vocab.json", "vocab.txt")
"""Names of tokenizer files that lists of labels, and vocabularies of speech models and proteins, have too."""
TEXT_TASKS = frozenset((FEATURE_EXTRACTION, TEXT_CLASSIFICATION, TEXT_GENERATION, TEXT_RANKING))


@dataclass
class Checked:
    """The findings of `check`. The exit code is 1 when any finding is an error or a danger."""

    files: list[str]
    tensors: int
    nbytes: int
    findings: list[Located] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"<Checked {counted(len(self.files), 'file')}, {counted(self.tensors, 'tensor')}: "
            f"{counts(self.findings)}; table() shows them>"
        )

    @property
    def exit_code(self) -> int:
        return 1 if any(finding.severity in ("danger", "error") for finding in self.findings) else 0

    def table(self) -> str:
        """The findings as aligned text, the worst first."""
        return table(self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": self.files,
            "tensors": self.tensors,
            "bytes": self.nbytes,
            "findings": [finding.to_json() for finding in self.findings],
        }


def check(
    path: str | os.PathLike[str],
    options: ReadOptions | None = None,
    *,
    format: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Checked:
    """Check a model file, index, directory (of diffusers with all parts) or hub repository; arguments as for `open`.

    Raises:
        Error: the file breaks a rule without which it cannot be read at all.
    """
    options, progress = options or ReadOptions(), progress or NoProgress()
    pipeline = (Path(path) / MODEL_INDEX).is_file()
    graph = open_model(
        path,
        options,
        format=format,
        revision=revision,
        offline=offline,
        upgraded=False,
        dequantized=False,
        parts=pipeline,
    )
    if not pipeline:
        return _checked(graph, options, format, progress)
    each = [_checked(part, options, format, progress) for part in networks(graph)]
    return Checked(
        [file for found in each for file in found.files],
        sum(found.tensors for found in each),
        sum(found.nbytes for found in each),
        [*(finding for found in each for finding in found.findings), *_companions(Path(path), graph)],
    )


def _checked(graph: Graph, options: ReadOptions, format: str | None, progress: Progress) -> Checked:
    """The findings in a model that is not made of others."""
    refuse_unwritten(graph)
    graph.weights = collect_weights(graph)
    checked = Checked([*graph.files, *graph.external_files], len(graph), graph.nbytes)
    found = checked.findings
    sizes = sum(os.stat(file).st_size for file in graph.files)
    progress.phase("checking")
    progress.start(sizes)
    try:
        for file in graph.files:
            source = WatchedSource(file, progress.advance)
            found += [Located.of(file, finding) for finding in detect(source, format).check(source, options)]
    finally:
        progress.finish()
    found += [Located(graph.files[0], note.code, "info", note.message, member=note.tensor) for note in graph.notes]
    found += _unaligned(graph)
    found += _scheme(graph)
    progress.phase("reading")
    progress.start(graph.nbytes)
    try:
        found += _values(graph, progress)
    finally:
        progress.finish()
    found += _companions(Path(graph.files[0]).parent, graph)
    if not any(finding.code == NOT_JSON for finding in found):
        found += _tokenizer(graph)
    return checked


def _unaligned(graph: Graph) -> Iterator[Located]:
    """Tensors whose elements do not begin at a multiple of their size, which readers that map the file must copy.

    Inside the message of a graph nothing is aligned, and nobody expects it.
    """
    odd: dict[str, list[str]] = {}
    for name, tensor in graph.weights.items():
        storage, size = tensor.storage, max(1, tensor.dtype.bits // 8)
        if graph.outputs and isinstance(storage, Region) and storage.source.path in graph.files:
            continue
        if tensor.qtype is None and isinstance(storage, Region) and storage.nbytes and storage.offset % (size & -size):
            odd.setdefault(storage.source.path, []).append(name)
    for path, names in odd.items():
        yield Located(
            path,
            "W-ALIGN",
            "warning",
            f"{counted(len(names), 'tensor', verb='is')} not aligned to the size of an element: {_named(names)}",
        )


def _scheme(graph: Graph) -> Iterator[Located]:
    """Whether the tensors are what the configuration says of their quantization."""
    try:
        prequantized.dequantized(graph)
    except Error as error:
        severity = "warning" if isinstance(error, UnsupportedError) else "error"
        yield Located(error.file or graph.files[0], error.code, severity, error.why)


def _values(graph: Graph, progress: Progress) -> Iterator[Located]:
    """Read every tensor, and say which hold NaN or infinities, and which hold the same bytes as others."""
    shared: dict[Hashable, list[str]] = {}
    equal: dict[Hashable, list[str]] = {}
    for name, tensor in graph.weights.items():
        key = (tensor.storage.key, tensor.dtype) if tensor.storage.key is not None else (name,)
        shared.setdefault(key, []).append(name)
        if len(shared[key]) > 1:
            progress.advance(tensor.nbytes)
            continue
        digest, nans, infinities = _read(tensor, progress)
        if nans:
            yield Located(
                graph.files[0],
                "W-NAN",
                "warning",
                f"{nans:,} of {counted(tensor.count, 'value')} {'is' if nans == 1 else 'are'} NaN",
                member=name,
            )
        if infinities:
            yield Located(
                graph.files[0],
                "W-INF",
                "info",
                f"{infinities:,} of {counted(tensor.count, 'value')} {'is' if infinities == 1 else 'are'} infinite",
                member=name,
            )
        if tensor.nbytes >= TELLING:
            equal.setdefault((digest, tensor.dtype, tensor.shape), []).append(name)
    for groups, code, what in ((shared, "W-TIED", "share their bytes"), (equal, "W-SAME", "hold the same values")):
        for names in groups.values():
            if len(names) > 1:
                yield Located(graph.files[0], code, "info", f"{counted(len(names), 'tensor')} {what}: {_named(names)}")


def _read(tensor: StoredTensor, progress: Progress) -> tuple[bytes, int, int]:
    """Digest of the bytes, and how many values are NaN and infinite."""
    import numpy

    digest, nans, infinities = hashlib.blake2b(digest_size=16), 0, 0
    special = tensor.dtype.kind in ("float", "complex") and tensor.dtype.numpy is not None
    for data in tensor.chunks():
        digest.update(data)
        progress.advance(len(data))
        if special:
            values = unpack(data, tensor.dtype, len(data) // tensor.dtype.block_nbytes * tensor.dtype.block)
            values = values if values.dtype.itemsize > 2 else values.astype(numpy.float32)
            if not numpy.isfinite(values).all():
                nans += int(numpy.isnan(values).sum())
                infinities += int(numpy.isinf(values).sum())
    return digest.digest(), nans, infinities


def _tokenizer(graph: Graph) -> Iterator[Located]:
    """Whether the tokenizer next to the weights, or in their file, can be read."""
    named = first_of(graph)
    if named is not None and named[0] in VOCABULARIES and MERGES not in graph.attachments and not _takes_text(graph):
        return
    try:
        read(graph)
    except Error as error:
        if error.code != NO_TOKENIZER:
            path = graph.files[0] if named is None else str(Path(graph.files[0]).parent / named[0])
            severity = "warning" if isinstance(error, UnsupportedError) else "error"
            yield dataclasses.replace(Located.of_error(path, error), severity=severity, member=None)


def _takes_text(graph: Graph) -> bool:
    """Whether the files state an architecture whose inputs are texts."""
    try:
        said = stated(graph)
        return said is not None and any(task.name in TEXT_TASKS for task in find_architecture(*said).tasks)
    except UnsupportedError:
        return False


def _companions(folder: Path, graph: Graph) -> Iterator[Located]:
    """The JSON files of a model directory, and what its index promises."""
    names = [name for name in graph.attachments if name.endswith(".json") and (folder / name).is_file()]
    indexes = [path.name for path in folder.glob(f"*{INDEX}")] if len(graph.files) > 1 else []
    for name in (*names, *indexes):
        path = str(folder / name)
        try:
            source = Source(path)
            source.budget.charge(source.size, name)
            value = parse(source.read(0, source.size), source, 0, NOT_JSON)
        except Error as error:
            yield Located.of_error(path, error)
            continue
        total = value.get("metadata", {}) if isinstance(value, dict) and name in indexes else {}
        promised = total.get("total_size") if isinstance(total, dict) else None
        if promised is not None and promised != graph.nbytes:
            yield Located(
                path,
                "W-INDEX-SIZE",
                "warning",
                f"total_size is {promised}, the tensors have {counted(graph.nbytes, 'byte')}",
            )


def _named(names: Iterable[str]) -> str:
    first = list(names)
    more = f" and {len(first) - NAMED} more" if len(first) > NAMED else ""
    return ", ".join(first[:NAMED]) + more
