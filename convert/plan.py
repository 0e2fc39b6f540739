"""Planning: open, select, cast and lay out, from headers alone. A `Plan` is what --dry-run shows and what `pipeline` carries out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from ..ops.quants import dequantized
from ..runtime.dtype import U8
from ..runtime.errors import UnsafeFileError, UnsupportedError, UsageError
from ..runtime.format import FileLayout, Format, Piece, WriteOptions
from ..runtime.graph import Graph
from ..runtime.limits import current
from ..runtime.passes.cast import Cast
from ..runtime.passes.select import Select
from ..runtime.passes.tied import Tied
from ..runtime.passes.weights import weights_only
from ..runtime.record import dataclass
from ..runtime.source import Source
from ..runtime.storage import Region, Storage
from ..runtime.tensor import CHUNK, Tensor, exact_nbytes
from ..runtime.units import counted, human_size
from . import recognise
from .adapters import merge
from .directory import INDEX
from .opening import ATTACHED_SUFFIXES, attachments, merged, open_model
from .options import Options, check_dtypes
from .prequantized import note_kept
from .retyping import graph_dtype, retype
from .streams import refuse_stream
from .translating import Rules, name_file_type, translated

LOOSE_SUFFIXES = (*ATTACHED_SUFFIXES, ".cfg")
"""Of files that are written beside the weights; darknet's layers are a .cfg."""
CONFIG, TEMPLATE = "config.json", "chat_template.jinja"
COPIES = 6
"""Chunks that one thread may hold at once: the source, the widened values, the audit's masks and the result."""


@dataclass(eq=False)
class Plan:
    """A conversion that is fully known and not yet begun.

    Attributes:
        graph: what will be written, after all passes.
        format: of the output.
        folder: where the files go; name: what they are called together.
        files: their exact layout; attached: the names of those that are attachments, copied beside the weights.
    """

    inputs: list[str]
    graph: Graph
    source_format: str
    format: Format
    folder: Path
    name: str
    files: list[FileLayout]
    attached: frozenset[str]
    options: Options
    casts: Cast
    fingerprint: str

    def __repr__(self) -> str:
        target = self.folder / self.files[0].name if len(self.files) == 1 else self.folder
        return f"<Plan {self.graph!r} -> {self.format.name}: {counted(len(self.files), 'file')}, {human_size(self.nbytes)}, {target}>"

    def __str__(self) -> str:
        """What ``--dry-run`` shows."""
        source, made = self.graph.files, counted(len(self.files), "file")
        dtypes = ", ".join(sorted({tensor.dtype.name for tensor in self.graph.weights.values()}))
        tensors = counted(len(self.graph), "tensor")
        return (
            f" source   {self.source_format} · {counted(len(source) + len(self.graph.beside), 'file')} · {tensors}\n"
            f" plan     {self.format.name} · {made} · {dtypes} · {human_size(self.nbytes)}\n"
            f" needs    {human_size(self.peak_memory)} of memory at most · {human_size(self.disk_free)} of disk free"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all output files."""
        return sum(file.nbytes for file in self.files)

    @property
    def threads(self) -> int:
        return self.options.threads or min(4, os.cpu_count() or 1)

    @property
    def chunk(self) -> int:
        """Bytes of a tensor that one thread handles at a time."""
        allowed = min(self.options.max_memory, current().memory) if "memory" in current().chosen else self.options.max_memory
        return max(1 << 16, min(CHUNK, allowed // (self.threads * COPIES)))

    @property
    def peak_memory(self) -> int:
        """Bytes that writing holds at most beyond the base, estimated: literal bytes of headers plus every thread's chunks."""
        literal = sum(len(piece.data) for file in self.files for piece in file.pieces if isinstance(piece.data, bytes))
        units = [piece.data.unit for file in self.files for piece in file.pieces if isinstance(piece.data, Tensor)]
        return literal + self.threads * COPIES * max(self.chunk, *units, 0) if units else literal

    @property
    def disk_free(self) -> int:
        """Bytes free where the output goes."""
        return shutil.disk_usage(_existing(self.folder)).free


def plan(inputs: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str], options: Options) -> Plan:
    """Everything that converting would do, decided from headers alone."""
    check_dtypes(options)
    graph = opened(inputs, target_format(os.fspath(output), options), options)
    return plan_graph(graph, Path(output), options, [os.fspath(path) for path in inputs])


def opened(inputs: Sequence[str | os.PathLike[str]], format: Format, options: Options) -> Graph:
    """All inputs as one graph, as a conversion to `format` needs them."""
    kept = keeps_quantized(options, format)

    def one(path: str | os.PathLike[str]) -> Graph:
        return open_model(
            path, options.read, format=options.source_format, revision=options.revision, offline=options.offline, upgraded=format.graphs,
            dequantized=not kept,
        )

    graph = merged([one(path) for path in inputs], "an input")
    if kept:
        note_kept(graph)
    return graph


def keeps_quantized(options: Options, format: Format) -> bool:
    """Whether weights that were quantized elsewhere go out as they are stored."""
    if options.keep_quantized is not None:
        return options.keep_quantized
    return options.dtype is None and not options.tensor_types and not options.lora and not format.graphs and format.name != "gguf"


def plan_graph(graph: Graph, output: Path, options: Options, inputs: Sequence[str] = ()) -> Plan:
    """The plan for an open graph, which it changes."""
    recognise.refuse_unwritten(graph)
    format = target_format(os.fspath(output), options)
    folder, stem, beside = place(output, format)
    writing = WriteOptions(
        stem, options.shard_nbytes, options.shard_tensors, options.shard_groups, external_data=options.external_data, opset=options.opset
    )
    if not format.graphs:
        weights_only(graph)
    _refuse_part(graph, options)
    dtype = graph_dtype(graph, options) if format.graphs else options.dtype
    built = not graph.nodes
    rules = prepared(graph, format, beside, options)
    options.select.run(graph)
    Tied(options.tied).run(graph)
    casts = Cast(dtype, options.tensor_types + rules, options.nan, dequantized)
    if graph.nodes:
        retype(graph, casts, built=built)
    else:
        casts.run(graph)
    if rules:
        name_file_type(graph)
    for key, value in options.metadata.items():
        graph.metadata.pop(key, None)
        if value is not None:
            graph.metadata[key] = value
    _check_holdable(graph, format)
    if format.prepare is not None:
        format.prepare(graph, writing)
    loose = sorted(graph.attachments.items()) if beside else []
    held = dataclasses.replace(graph, attachments={}) if beside else graph
    assert format.layout is not None
    files = format.layout(held, writing)
    _check_loose([name for name, _ in loose], {file.name.lower() for file in files}, folder)
    files += [_attachment_file(name, storage) for name, storage in loose]
    return Plan(
        list(inputs), graph, graph.format, format, folder, stem, files, frozenset(name for name, _ in loose), options, casts,
        fingerprint(graph, files, options),
    )


def prepared(graph: Graph, format: Format, beside: bool, options: Options) -> Rules:
    """Give a graph the files beside it, the adapters and the names that it has in the output; rules for dtypes that the output needs.

    Args:
        beside: whether the output is a model directory.
    """
    _attach(graph, options)
    merge(graph, options.lora, offline=options.offline)
    config = graph.attachments.get(CONFIG)
    blocks = options.dtype is None and not options.tensor_types
    rules = translated(graph, format, beside, options.attachments, blocks, options.weights_only)
    if not options.attachments and graph.attachments.get(CONFIG) is config:
        graph.attachments.clear()
    return rules


def _check_loose(names: Sequence[str], written: set[str], folder: Path) -> None:
    """What stands beside the weights is texts, with names that are no path, no model's, no index and not written already: they come from files."""
    for name in names:
        text = name.lower().endswith(LOOSE_SUFFIXES) and not name.lower().endswith(INDEX) and not set(name) & set("/\\\0")
        if not text or name.lower() in written:
            why = f"the model carries a file {name!r}, which is {'the name of a file to be written' if text else 'no text that belongs to a model'}"
            raise UnsafeFileError("E-OUT-NAME", folder, why, hint="Use --no-tokenizer to leave such files out")


def _refuse_part(graph: Graph, options: Options) -> None:
    """Weights that nodes use are neither left out, renamed nor shared without the nodes."""
    chosen: dict[str, object] = {"--tied dedupe": options.tied == "dedupe", "--lora": options.lora}
    chosen |= {"--include, --exclude, --rename or --map": options.select != Select()}
    given = [name for name, value in chosen.items() if value]
    if graph.nodes and given:
        raise UsageError(
            "E-OPTION-NODES", None, f"{given[0]} changes weights alone, and the nodes of the graph would not fit them any more",
            hint="candle-convert graph rename changes the names of a graph",
        )


def target_format(output: str, options: Options) -> Format:
    """The format that the options name, or the suffix of `output`."""
    refuse_stream(output, "a model")
    format = recognise.by_name(options.to) if options.to is not None else recognise.by_suffix(output)
    if format is None or format.layout is None:
        writable = [known.name for known in recognise.formats() if known.layout is not None]
        if format is None:
            raise UsageError("E-OUT-FORMAT", output, "needs a suffix that names a format", hint=f"Use --to {'|'.join(writable)}")
        raise UnsupportedError("E-OUT-FORMAT", output, f"{format.name} is only read", hint=f"Written are: {', '.join(writable)}")
    return format


def place(output: Path, format: Format) -> tuple[Path, str, bool]:
    """The folder, the stem of file names, and whether the output is a model directory of its own."""
    suffix = next((suffix for suffix in format.suffixes if output.name.lower().endswith(suffix)), None)
    if output.is_dir() or (suffix is None and not output.suffix):
        return output, format.stem, True
    return output.parent, output.name.removesuffix(suffix) if suffix else output.name, False


def _attach(graph: Graph, options: Options) -> None:
    if options.tokenizer is not None:
        files = attachments(Path(options.tokenizer), graph)
        graph.attachments |= {name: storage for name, storage in files.items() if name != CONFIG}  # that is another model's
    if options.chat_template is not None:
        template = Source(options.chat_template)
        graph.attachments[TEMPLATE] = Region(template, 0, template.size)
    if not options.attachments:
        graph.attachments = {name: storage for name, storage in graph.attachments.items() if name == CONFIG}


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _check_holdable(graph: Graph, format: Format) -> None:
    wrong = {name: tensor.dtype.name for name, tensor in graph.weights.items() if tensor.dtype not in format.dtypes}
    if wrong:
        shown = ", ".join(f"{name} ({dtype})" for name, dtype in list(wrong.items())[:5])
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise UnsupportedError(
            "E-OUT-DTYPE", None, f"{format.name} cannot hold {len(wrong)} of {len(graph)} tensors: {shown}{more}",
            hint="Cast them with --dtype or --tensor-type 'RE=TYPE', or leave them out with --exclude",
        )
    parts = [name for name, tensor in graph.weights.items() if exact_nbytes(tensor.dtype, tensor.shape) is None]
    if parts and not format.ragged:
        raise UnsupportedError(
            "E-OUT-DTYPE", None, f"{format.name} cannot hold {counted(len(parts), 'tensor')} whose last byte is not full, such as {parts[0]}",
            hint="Cast them with --tensor-type 'RE=TYPE', or leave them out with --exclude",
        )
    deep = [name for name, tensor in graph.weights.items() if format.max_dims is not None and len(tensor.shape) > format.max_dims]
    if deep:
        raise UnsupportedError(
            "E-OUT-DIMS", None, f"{format.name} holds at most {format.max_dims} dimensions; {len(deep)} tensors have more, such as {deep[0]}",
            hint="Leave them out with --exclude",
        )
    if format.graphs and not graph.nodes and not graph.outputs:
        raise UnsupportedError(
            "E-OUT-NODES", None, f"the model is weights without a graph, {format.name} is a graph of nodes",
            hint="Export the model itself to ONNX, or write its weights to safetensors, gguf or npz",
        )


def _attachment_file(name: str, storage: Storage) -> FileLayout:
    pieces = (Piece(0, Tensor(U8, (storage.nbytes,), storage)),) if storage.nbytes else ()
    return FileLayout(name, storage.nbytes, pieces)


def fingerprint(graph: Graph, files: Sequence[FileLayout], options: Options) -> str:
    """A digest of all that decides the output bytes: the inputs as they are on disk, the layout, the options that change values."""
    inputs = []
    for path in (*graph.files, *graph.beside):
        status = os.stat(path)
        inputs.append([os.path.abspath(path), status.st_size, status.st_mtime_ns])
    reading = [options.read.key, options.read.void_dtype, repr(options.select), options.nan, options.lora]
    digest = hashlib.sha256(json.dumps([__version__, inputs, options.dtype, options.tensor_types, reading]).encode())
    for file in files:
        digest.update(json.dumps([file.name, file.nbytes]).encode())
        for piece in file.pieces:
            literal = piece.data if isinstance(piece.data, bytes) else f"{piece.data.dtype} {piece.data.shape}".encode()
            digest.update(piece.offset.to_bytes(8, "little") + hashlib.sha256(literal).digest())
    return digest.hexdigest()
