"""whisper.cpp ``ggml-*.bin``: eleven hyper-parameters, mel filters, vocabulary, tensors without padding.

The mel filters become the weight ``mel_filters``, f32 [n_mels, frequencies]. The vocabulary has the text tokens only
(whisper.cpp derives the names of special tokens and timestamps) as raw bytes. ``ftype`` is 1000 times the quantization
version plus the file type; the version determines the block layouts, see `ops/quants/pre_gguf.py`. Sources:
whisper.cpp's models/convert-pt-to-ggml.py and loader.
"""

from __future__ import annotations

from ..runtime.base.errors import FormatError, UnsupportedError
from ..runtime.base.units import counted
from ..runtime.contract.format import FileLayout, Format, ReadOptions, WriteOptions
from ..runtime.ir.graph import Graph
from ..runtime.tensor.dtype import F32
from ..runtime.tensor.file import Source
from ..runtime.tensor.storage import Region
from ..runtime.tensor.stored_tensor import StoredTensor
from .containers import ggml_records, whisper_writer
from .containers.binary_fields import Fields
from .containers.ggml_records import FTYPES, TYPES, UNVERSIONED, WHISPER

MAX_DIMS = 4
SUFFIX = ".whisper.bin"
GLOBAL, AUDIO_LAYER, TEXT_LAYER = 11, 15, 24
"""Number of tensors outside of layers, of an encoder layer, and of a decoder layer."""


def sniff(source: Source) -> bool:
    """The unversioned magic number, followed by hyper-parameters of a whisper model."""
    return ggml_records.magic(source) == UNVERSIONED and ggml_records.family(source) == "whisper"


def read(source: Source, options: ReadOptions) -> Graph:
    """The filters, then the tensors in the file's order; hyper-parameters and vocabulary as metadata."""
    fields = Fields(source, "E-GGML-TRUNCATED")
    if fields.bytes(4, "the magic number") != UNVERSIONED:
        why = "does not start with GGML's magic number"
        raise FormatError("E-GGML-MAGIC", source.path, why, at=0, expected=UNVERSIONED, found=source.head(4))
    values = fields.ints(len(WHISPER), "the hyper-parameters")
    hparams = dict(zip(WHISPER, values, strict=True))
    filters = fields.ints(2, "the size of the mel filters")
    if not ggml_records.fits_whisper([*values, *filters]):
        shown = ", ".join(f"{name} {value}" for name, value in hparams.items())
        why = (
            f"the hyper-parameters are not those of a whisper model: {shown}, {filters[0]} mel filters of {filters[1]}"
        )
        raise FormatError("E-GGML-HPARAMS", source.path, why, at=4)
    version, hparams["ftype"] = divmod(hparams["ftype"], whisper_writer.FACTOR)
    if version not in range(len(TYPES)) or hparams["ftype"] not in FTYPES:
        why = f"unknown quantization version {version} or file type {hparams['ftype']}"
        raise UnsupportedError(
            "E-GGML-FTYPE", source.path, why, at=4, expected=f"versions 0 to {len(TYPES) - 1}, kinds 0 to 18"
        )
    size = 4 * filters[0] * filters[1]
    mel = StoredTensor(F32, filters, Region(source, fields.skip(size, "the mel filters"), size))
    (count,) = fields.ints(1, "the number of tokens")
    if not 0 <= count <= hparams["n_vocab"]:
        raise FormatError(
            "E-GGML-VOCAB",
            source.path,
            f"there are {counted(count, 'token')}",
            at=fields.at - 4,
            expected=f"at most {hparams['n_vocab']:,}",
        )
    tokens, _ = ggml_records.vocabulary(fields, count, False)
    graph = Graph(format="whisper", files=[source.path])
    graph.metadata = {f"whisper.{name}": value for name, value in hparams.items()}
    graph.metadata |= {"whisper.qnt_version": version, "tokenizer.ggml.tokens": tokens}
    graph.weights = {record.name: record.tensor for record in ggml_records.records(fields, TYPES[version], MAX_DIMS, 1)}
    _check_complete(graph, source, hparams)
    if whisper_writer.FILTERS in graph.weights:
        why = f"a tensor has the name {whisper_writer.FILTERS!r}, which stands for the filters of the header"
        raise FormatError("E-GGML-TWICE", source.path, why)
    graph.weights = {whisper_writer.FILTERS: mel, **graph.weights}
    return graph


def _check_complete(graph: Graph, source: Source, hparams: dict[str, int]) -> None:
    total = GLOBAL + AUDIO_LAYER * hparams["n_audio_layer"] + TEXT_LAYER * hparams["n_text_layer"]
    if not graph.weights:
        graph.note(
            "W-GGML-EMPTY", "the file ends after the vocabulary, like whisper.cpp's test files: it has no weights"
        )
    elif len(graph.weights) < total:
        raise FormatError(
            "E-GGML-TRUNCATED",
            source.path,
            f"{counted(total - len(graph.weights), 'tensor', verb='is')} missing",
            at=source.size,
            expected=f"{counted(total, 'tensor')}",
            found=f"{len(graph.weights):,}",
            hint="The file is truncated; download it again",
        )


def layout(graph: Graph, options: WriteOptions) -> list[FileLayout]:
    """One file; see `whisper_writer`."""
    return whisper_writer.layout(graph, options, SUFFIX)


FORMAT = Format(
    name="whisper",
    title="whisper.cpp models (ggml-*.bin)",
    suffixes=(SUFFIX,),
    sniff=sniff,
    read=read,
    layout=layout,
    prepare=whisper_writer.prepare,
    dtypes=frozenset(whisper_writer.NUMBERS),
    max_dims=3,
    architecture="whisper",
)
