"""Conversion plan: opens, selects, casts and lays out tensors, from headers only."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...models.preprocess.explicit_settings import write_defaults
from ...runtime.base import __version__
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.base.limits import current
from ...runtime.base.units import counted, human_size
from ...runtime.contract.architecture import MODEL
from ...runtime.contract.format import FileLayout, Format, Piece, WriteOptions
from ...runtime.ir.clone import copied_graph, with_own_tables
from ...runtime.ir.graph import Graph
from ...runtime.passes.precision.cast_weights import Audit, Cast
from ...runtime.passes.quantize.block_weights import BlockAudit
from ...runtime.passes.weights.collect import weights_only
from ...runtime.passes.weights.select import Select
from ...runtime.passes.weights.tied import Tied
from ...runtime.tensor.dtype import U8
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Region, Storage
from ...runtime.tensor.stored_tensor import CHUNK, StoredTensor
from ..console.stdio import refuse_stream
from ..mmproj.split import full_precision
from ..open import detect_format, graph_files, model_files
from ..open.companion import without_pickles
from ..open.diffusion.picture_gguf import longest_name
from ..open.hub import absolute
from ..open.mmproj_file import PREFIX, paired
from ..open.open_model import attachments, merged, open_model
from ..open.prequantized import note_stored_quantized
from ..open.shard_set import complete_sets, is_numbered, missing_shards, whole_models
from ..translate.diffusion.component_graphs import component_graphs
from ..translate.translate import Rules, graph_names, name_file_type, translated
from . import graph_variants
from .conversion_options import Options, check_dtypes
from .merged_adapters import merge_adapters
from .model_folder import CONFIG, beside_parts, configs, laid_out, merge_whole, stem_of
from .plan_checks import check_holdable, check_loose, refuse_part

TEMPLATE = "chat_template.jinja"
INPUT_FILES = "sizes or times of the input files"
FINGERPRINT_PARTS = (INPUT_FILES, "options", "names, shapes and small values of the output")
"""Parts that the digests of a fingerprint describe, in their order."""
DIGEST_DIGITS = 32
"""Hexadecimal digits of each of them."""
COPIES = 6
"""Chunks that one thread may hold at once: the source, the widened values, the audit's masks and the result."""


@dataclass(eq=False)
class Part:
    """A graph that will be written, after all passes, and the files that hold it.

    Attributes:
        prefix: before names of its weights in the graph of the plan, where these have the name of the part.
        format: of its files; None for that of the plan.
    """

    graph: Graph
    files: list[FileLayout]
    prefix: str = ""
    format: Format | None = None


@dataclass(eq=False)
class Plan:
    """A conversion that is fully known and not yet begun.

    Attributes:
        graph: what will be written, after all passes; of a model of several graphs the weights of all, each called
            ``FILE/NAME``, without nodes.
        format: of the output.
        folder: where the files go; name: what they are called together.
        files: their exact layout; attached: the names of those that are attachments, copied next to the weights.
        parts: the graphs of a model that has several.
        blocks: audits of the weights that are quantized.
        source_tensors: how many the model has, where the output stores some as several; None for as many.
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
    parts: tuple[Part, ...] = ()
    blocks: Sequence[BlockAudit] = ()
    source_tensors: int | None = None

    @property
    def audits(self) -> list[Audit | BlockAudit]:
        """Audits that count while weights are computed, in the same order for every plan of this conversion."""
        return [*self.casts.audits, *self.blocks]

    def __repr__(self) -> str:
        files = counted(len(self.files), "file")
        return f"<Plan {self.graph!r} -> {self.format.name}: {files}, {human_size(self.nbytes)}, {self.target}>"

    def __str__(self) -> str:
        """The text that ``--dry-run`` shows."""
        files = counted(len(self.graph.files) + len(self.graph.external_files), "file")
        made = counted(len(self.files), "file")
        dtypes = ", ".join(sorted({tensor.dtype.name for tensor in self.graph.weights.values()}))
        tensors = counted(self.source_tensors or len(self.graph), "tensor")
        return (
            f" source   {self.source_format} · {files} · {tensors}\n"
            f" plan     {self._formats()}{self._opset()} · {made} · {dtypes} · {human_size(self.nbytes)}\n"
            f"{self._mmproj_line()}"
            f" needs    {human_size(self.peak_memory)} of memory at most · {human_size(self.disk_free)} of disk free"
        )

    def _formats(self) -> str:
        """Names of the formats of the files."""
        found = {(part.format or self.format).name for part in self.parts} or {self.format.name}
        return ", ".join(sorted(found))

    def _mmproj_line(self) -> str:
        """A line of the plan for an encoder and a projector."""
        if self.mmproj is None:
            return ""
        graph = self.parts[1].graph
        dtypes = ", ".join(sorted({tensor.dtype.name for tensor in graph.weights.values()}))
        return f" mmproj   {Path(self.mmproj).name} · {counted(len(graph), 'tensor')} · {dtypes}\n"

    def _opset(self) -> str:
        """The opsets of the written networks, as part of the plan's line."""
        graphs = [part.graph for part in self.parts] or [self.graph]
        found = sorted({graph.opsets[""] for graph in graphs if self.format.graphs and "" in graph.opsets})
        return f" · opset {', '.join(map(str, found))}" if found else ""

    @property
    def target(self) -> str:
        """The path of the only file, or of the language model's next to an encoder's, or of the folder."""
        return str(self.folder / self.files[0].name if len(self.files) == 1 or self.mmproj else self.folder)

    @property
    def mmproj(self) -> str | None:
        """The path of the file of an encoder and a projector next to that of the language model; None without one."""
        names = [file.name for file in self.files if file.name.startswith(PREFIX)] if self.graph.mmproj else []
        return str(self.folder / names[0]) if names else None

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
        allowed = (
            min(self.options.max_memory, current().memory) if "memory" in current().chosen else self.options.max_memory
        )
        return max(1 << 16, min(CHUNK, allowed // (self.threads * COPIES)))

    @property
    def peak_memory(self) -> int:
        """Bytes that writing holds at most beyond the base, estimated: literal bytes of headers plus every thread's
        chunks."""
        literal = sum(len(piece.data) for file in self.files for piece in file.pieces if isinstance(piece.data, bytes))
        units = [
            piece.data.unit for file in self.files for piece in file.pieces if isinstance(piece.data, StoredTensor)
        ]
        return literal + self.threads * COPIES * max(self.chunk, *units, 0) if units else literal

    @property
    def disk_free(self) -> int:
        """Bytes free where the output goes."""
        return shutil.disk_usage(_existing(self.folder)).free


OF_WHOLE_MODELS = ("gguf", "onnx")
"""Formats whose files hold a model with its architecture: one of its shards stands for all of them."""


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
            path,
            options.read,
            format=options.source_format,
            revision=options.revision,
            offline=options.offline,
            upgraded=format.graphs,
            dequantized=not kept,
            parts=True,
        )

    whole = whole_models(inputs) if format.name in OF_WHOLE_MODELS else complete_sets(inputs)
    graph = merged(paired([one(path) for path in whole]), "an input")
    _note_missing_shards(graph, whole)
    if kept:
        note_stored_quantized(graph)
    return graph


def _note_missing_shards(graph: Graph, paths: Sequence[str | os.PathLike[str]]) -> None:
    """Note a part of a model that is written alone."""
    given = {os.path.abspath(path) for path in paths}
    path, missing = max(((path, missing_shards(path, given)) for path in paths), key=lambda each: each[1])
    if missing:
        why = f"the output is a part of a model: {counted(missing, 'shard', verb='is')} not among the inputs"
        graph.note("W-SHARD-PART", f"{why}; the folder {Path(path).parent} names all of them")


def keeps_quantized(options: Options, format: Format) -> bool:
    """Whether weights that were quantized elsewhere go out as they are stored."""
    if options.keep_quantized is not None:
        return options.keep_quantized
    return (
        options.dtype is None
        and not options.tensor_types
        and not options.lora
        and not format.graphs
        and format.name != "gguf"
    )


def plan_graph(graph: Graph, output: Path, options: Options, inputs: Sequence[str] = ()) -> Plan:
    """The plan for an open graph, which it changes."""
    detect_format.refuse_unwritten(graph)
    format = target_format(os.fspath(output), options)
    folder, stem, beside = output_location(output, format)
    graph = laid_out(graph, format, output, beside)
    whole = model_files.whole_of(graph)
    if not format.graphs:
        if options.with_preprocessing:
            why = f"{format.name} files hold weights, and --with-preprocessing is about nodes"
            raise UsageError("E-OPTION", output, why, hint="Write ONNX with it")
        weights_only(graph)
    inner = merge_whole(graph, whole, options)
    refuse_part(graph, inner)
    if format.graphs and not graph.nodes:
        options.select.run(graph)
        inner = dataclasses.replace(inner, select=Select())
    elif format.name == "gguf" and graph.format != "gguf":
        first, rest = options.select.split(graph.weights)
        first.run(graph)
        inner = dataclasses.replace(inner, select=rest)
    dtype = options.dtype
    if format.graphs:
        from .graph_dtypes import graph_dtype

        dtype = graph_dtype(graph, options)
    if whole is not None and format.graphs:
        if options.dtypes:
            raise UsageError(
                "E-OPTION", output, "--dtypes does not apply to a pipeline of several models", hint="Use --dtype"
            )
        named = component_graphs(graph)
        sources = {folder: source for folder, (_, source) in named.items()}
    else:
        sources = graph.parts or dict.fromkeys(graph_names(graph, format), graph)
        named = {name: (name, source) for name, source in sources.items()}
    variants = graph_variants.chosen(options, format)
    one_file = not options.dtypes or (len(variants) == 1 and not beside)
    if tuple(sources) == (MODEL,) and one_file:
        variant = dataclasses.replace(variants[0], folder="")
        part, casts = _part(graph, MODEL, stem, format, beside, inner, dtype, variant)
        if len(part.files) == 1 and not beside and not is_numbered(part.files[0].name):
            part = dataclasses.replace(part, files=[dataclasses.replace(part.files[0], name=output.name)])
        parts: tuple[Part, ...] = ()
        files = list(part.files)
        if graph.mmproj is not None and format.name == "gguf":
            other, own = _mmproj_part(graph.mmproj, f"{PREFIX}{stem}", format, options)
            parts, casts.audits, files = (part, other), [*casts.audits, *own.audits], [*files, *other.files]
            graph.notes += [note for note in other.graph.notes if note not in graph.notes]
    else:
        if not beside:
            several = f"the model has {counted(len(sources), 'graph')}, each of which is a file: {', '.join(sources)}"
            why = "--dtypes writes a file for each variant" if options.dtypes else several
            raise UsageError("E-OUT-GRAPHS", output, why, hint=f"Choose a directory: -o DIR/ --to {format.name}")
        made: dict[graph_variants.Variant, list[Part]] = {variant: [] for variant in variants}
        casts = Cast()
        for variant in variants:
            for name, source in sources.items():
                called = f"{name}{variant.suffix}" if graph.parts else None
                called = called if whole is None else f"{name}/{stem_of(source, stem, format)}"
                part, own = _part(_copied(source), named[name][0], called, format, beside, inner, dtype, variant)
                made[variant].append(part)
                casts.audits += own.audits
        parts = tuple(part for each in made.values() for part in each)
        files = [file for part in parts for file in part.files]
        attached, told = graph.attachments if whole is None else beside_parts(graph, whole), graph.notes
        _join(graph, {os.path.splitext(part.files[0].name)[0]: part for part in parts})
        if whole is not None:
            graph.notes = list(dict.fromkeys([*told, *graph.notes]))
            if not format.graphs and any(len(part.files) > 1 for part in parts):
                why = "each of the models in the folder is one file, and shards are several"
                raise UsageError("E-OPTION", output, why, hint="Leave out the options of shards")
            graph.attachments = {**attached, **configs(dict(zip(sources, [part.graph for part in parts], strict=True)))}
        graph_variants.add_settings(graph, made)
    if format.graphs and beside:
        write_defaults(graph)
    loose = sorted(without_pickles(graph).items()) if beside else []
    check_loose([name for name, _ in loose], {file.name.lower() for file in files}, folder)
    files += [attachment_file(name, storage) for name, storage in loose]
    return Plan(
        list(inputs),
        graph,
        graph.format,
        format,
        folder,
        stem,
        files,
        frozenset(name for name, _ in loose),
        options,
        casts,
        fingerprint(graph, files, options),
        parts,
    )


def _part(
    graph: Graph,
    name: str,
    stem: str | None,
    format: Format,
    beside: bool,
    options: Options,
    dtype: str | None,
    variant: graph_variants.Variant = graph_variants.PLAIN,
) -> tuple[Part, Cast]:
    """The output for an open graph, which it changes, and the casts of its weights.

    Args:
        name: which graph of the model, where it becomes nodes.
        stem: what its files are called, with the folder of a part; None for the name of the graph and of the variant.
        beside: whether the output is a model directory.
        dtype: of the weights, None to keep theirs.
        variant: the precision of an export, whose dtype overrides `dtype`.
    """
    if variant.dtype is not None:
        dtype, options = variant.dtype, dataclasses.replace(options, dtype=variant.dtype)
    built = not graph.nodes
    rules = prepare_graph(graph, format, beside, options, name)
    options.select.run(graph)
    Tied(options.tied).run(graph)
    casts = Cast(dtype, options.tensor_types + rules, options.nan, StoredTensor.dequantize)
    if graph.nodes:
        from .graph_dtypes import retype

        retype(graph, casts, built=built, f32_borders=variant.f32_borders)
        variant.apply(graph, options.allow_requantize)
    else:
        casts.run(graph)
    if rules:
        name_file_type(graph)
    for key, value in options.metadata.items():
        graph.metadata.pop(key, None)
        if value is not None:
            graph.metadata[key] = value
    check_holdable(graph, format)
    inner, _, called = (stem or "").rpartition("/")
    writing = WriteOptions(
        called or f"{graph_files.stem(name, graph)}{variant.suffix}",
        options.shard_nbytes,
        options.shard_tensors,
        options.shard_groups,
        external_data=options.external_data,
        opset=options.opset,
        longest_name=longest_name(graph),
    )
    if format.prepare is not None:
        format.prepare(graph, writing)
    held = dataclasses.replace(graph, attachments={} if beside else graph.attachments)
    assert format.layout is not None
    return Part(graph, graph_variants.placed(format.layout(held, writing), variant.folder, inner)), casts


def _mmproj_part(graph: Graph, stem: str, format: Format, options: Options) -> tuple[Part, Cast]:
    """The output for the encoder and the projector of a model, next to its language model."""
    made = _copied(graph)
    casts = cast_mmproj(made, options.dtype, options)
    name_file_type(made)
    assert format.layout is not None
    return Part(made, format.layout(made, WriteOptions(stem))), casts


def cast_mmproj(graph: Graph, dtype: str | None, options: Options) -> Cast:
    """Give the weights of an encoder and a projector a dtype, except those that llama.cpp takes in f32 alone."""
    casts = Cast(dtype, (*options.tensor_types, *full_precision(graph)), options.nan, StoredTensor.dequantize)
    casts.run(graph)
    return casts


def _copied(graph: Graph) -> Graph:
    """A graph that can be changed without the original."""
    return with_own_tables(copied_graph(graph, {}, typed=True) if graph.nodes else graph)


def _join(graph: Graph, parts: dict[str, Part]) -> None:
    """Let a graph tell of all that its parts hold: their weights as ``FILE/NAME``, their notes, their attachments."""
    graph.weights = {
        f"{stem}/{name}": tensor for stem, part in parts.items() for name, tensor in part.graph.weights.items()
    }
    graph.notes = list(dict.fromkeys(note for part in parts.values() for note in part.graph.notes))
    first = next(iter(parts.values())).graph
    graph.attachments, graph.metadata, graph.arch = first.attachments, first.metadata, first.arch


def prepare_graph(graph: Graph, format: Format, beside: bool, options: Options, name: str = MODEL) -> Rules:
    """Give a graph the files next to it, the adapters and its names in the output; rules for dtypes that the output
    needs.

    Args:
        beside: whether the output is a model directory.
        name: which graph of the model, where it becomes nodes.
    """
    _attach(graph, options)
    merge_adapters(graph, options.lora, offline=options.offline)
    config = graph.attachments.get(CONFIG)
    rules = translated(graph, format, beside, options, name)
    if not options.attachments and graph.attachments.get(CONFIG) is config:
        graph.attachments.clear()
    return rules


def target_format(output: str, options: Options) -> Format:
    """The format that the options name, or the suffix of `output`."""
    refuse_stream(output, "a model")
    format = _named_format(options.to) if options.to is not None else detect_format.by_suffix(output)
    if format is None:
        hint = f"Use --to {'|'.join(_writable())}"
        raise UsageError("E-OUT-FORMAT", output, "needs a suffix that names a format", hint=hint)
    if format.layout is None:
        hint = f"Written are: {', '.join(_writable())}"
        raise UnsupportedError("E-OUT-FORMAT", output, f"{format.name} is only read", hint=hint)
    return format


def _named_format(name: str) -> Format:
    try:
        return detect_format.by_name(name)
    except UsageError as error:
        error.hint = f"Written are: {', '.join(_writable())}"
        raise


def _writable() -> list[str]:
    return [known.name for known in detect_format.formats() if known.layout is not None]


def output_location(output: Path, format: Format) -> tuple[Path, str, bool]:
    """The folder, the stem of file names, and whether the output is a model directory of its own."""
    suffix = next((ending for ending in format.endings if output.name.lower().endswith(ending)), None)
    if output.is_dir() or (suffix is None and not output.suffix):
        return output, format.stem, True
    return output.parent, output.name.removesuffix(suffix) if suffix else output.name, False


def _attach(graph: Graph, options: Options) -> None:
    if options.tokenizer is not None:
        files = attachments(Path(options.tokenizer), graph)
        # that is another model's
        graph.attachments |= {name: storage for name, storage in files.items() if name != CONFIG}
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


def attachment_file(name: str, storage: Storage) -> FileLayout:
    """An attachment as a file of the output."""
    pieces = (Piece(0, StoredTensor(U8, (storage.nbytes,), storage)),) if storage.nbytes else ()
    return FileLayout(name, storage.nbytes, pieces)


def fingerprint(graph: Graph, files: Sequence[FileLayout], options: Options) -> str:
    """Digests of all that decides the output bytes, one for each of `FINGERPRINT_PARTS`: the inputs as they are on
    disk, the options that change values, and the layout."""
    inputs = []
    for path in (*graph.files, *graph.external_files):
        status = os.stat(path)
        inputs.append([os.path.abspath(path), status.st_size, status.st_mtime_ns])
    reading = [
        options.read.key,
        options.read.void_dtype,
        repr(options.select),
        options.nan,
        list(map(absolute, options.lora)),
    ]
    layout = hashlib.sha256()
    for file in files:
        layout.update(json.dumps([file.name, file.nbytes]).encode())
        for piece in file.pieces:
            literal = piece.data if isinstance(piece.data, bytes) else f"{piece.data.dtype} {piece.data.shape}".encode()
            layout.update(piece.offset.to_bytes(8, "little") + hashlib.sha256(literal).digest())
    settings = [__version__, options.dtype, options.tensor_types, reading]
    return "-".join((_digest(json.dumps(inputs)), _digest(json.dumps(settings)), layout.hexdigest()[:DIGEST_DIGITS]))


def with_settings(fingerprint: str, *settings: str | bytes) -> str:
    """A fingerprint that further settings decide too."""
    files, options, layout = fingerprint.split("-")
    digest = hashlib.sha256(options.encode())
    for each in settings:
        data = each.encode(errors="surrogatepass") if isinstance(each, str) else each
        digest.update(len(data).to_bytes(8, "little") + data)
    return "-".join((files, digest.hexdigest()[:DIGEST_DIGITS], layout))


def differing_parts(one: str, other: str) -> list[str]:
    """The `FINGERPRINT_PARTS` in which two fingerprints differ."""
    pairs = zip(FINGERPRINT_PARTS, one.split("-"), other.split("-"), strict=True)
    return [part for part, first, second in pairs if first != second]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
