"""Darknet ``.weights``: a version, the number of training images seen, then float32 elements only.

The version is three int32; the count is an int64 from version 0.2 on and an int32 before. The layers are described only
by the ``.cfg``: one next to the weights with the same stem gives tensors ``layers.{i}.biases``, ``.scales``,
``.rolling_mean``, ``.rolling_variance`` and ``.weights`` ([filters, channels, size, size], or [outputs, inputs]), and
is kept as metadata, as are the labels in a ``.names`` of that stem. Without it the file is one tensor ``weights``.
PyTorch-YOLOv3 writes version 0.0 with an int64 count; such files are recognized by their configuration only. Source:
darknet's load_weights_upto in parser.c.
"""

from __future__ import annotations

import math
from pathlib import Path

from ..runtime.base.errors import FormatError
from ..runtime.base.units import counted
from ..runtime.contract.format import Format, ReadOptions
from ..runtime.ir.graph import Graph
from ..runtime.tensor.dtype import F32
from ..runtime.tensor.file import Source, contained
from ..runtime.tensor.storage import Region
from ..runtime.tensor.stored_tensor import StoredTensor
from .containers import darknet_cfg
from .containers.binary_fields import Fields

VERSIONS = {(0, 0): 4, (0, 1): 4, (0, 2): 8}
"""Bytes of the image count by (major, minor) version."""
MAX_REVISION = 5
MAX_SEEN = 1 << 48


def sniff(source: Source) -> bool:
    """A known version, a plausible image count, and a multiple of 4 bytes after it."""
    head = source.head(20)
    major, minor, revision = (int.from_bytes(head[at : at + 4], "little") for at in (0, 4, 8))
    count = VERSIONS.get((major, minor))
    if (
        count is None
        or len(head) < 12 + count
        or revision > MAX_REVISION
        or source.size <= 12 + count
        or source.size % 4
    ):
        return False
    return int.from_bytes(head[12 : 12 + count], "little") < MAX_SEEN and (
        minor > 0 or _configuration(source) is not None
    )


def read(source: Source, options: ReadOptions) -> Graph:
    """The weights of every layer, or one flat tensor without a configuration."""
    fields = Fields(source, "E-DARKNET-TRUNCATED")
    major, minor, revision = fields.ints(3, "the version")
    if (major, minor) not in VERSIONS:
        raise FormatError(
            "E-DARKNET-VERSION", source.path, f"version {major}.{minor} is not known", at=0, expected="0.1 or 0.2"
        )
    name = _configuration(source)
    if name is None and minor == 0:
        hint = "Put the .cfg beside the weights, with the same stem"
        why = "version 0.0 is read together with its configuration only"
        raise FormatError("E-DARKNET-VERSION", source.path, why, at=0, hint=hint)
    cfg = None if name is None else Source(contained(source.directory, name, source.path))
    text = "" if cfg is None else darknet_cfg.text_of(cfg)
    layers = [] if cfg is None else darknet_cfg.weights_of(darknet_cfg.parse(text, cfg))
    wide = minor == 0 and source.size == 20 + sum(map(_nbytes, layers))
    seen = int.from_bytes(
        fields.bytes(8 if wide else VERSIONS[major, minor], "the number of images"), "little", signed=True
    )
    if not fields.left or fields.left % 4:
        why = f"{counted(fields.left, 'byte')} of weights are not whole float32 numbers"
        raise FormatError(
            "E-DARKNET-TRUNCATED", source.path, why, at=fields.at, hint="The file is truncated; download it again"
        )
    graph = Graph(format="darknet", files=[source.path])
    graph.metadata = {
        "darknet.major": major,
        "darknet.minor": minor,
        "darknet.revision": revision,
        "darknet.seen": seen,
    }
    if name is None or cfg is None:
        graph.weights["weights"] = StoredTensor(F32, (fields.left // 4,), Region(source, fields.at, fields.left))
        graph.note(
            "W-DARKNET-FLAT", "no .cfg of the same name beside the file: the weights are read as one flat tensor"
        )
        return graph
    graph.files.append(cfg.path)
    graph.metadata["darknet.cfg"] = text
    labels = Path(name).with_suffix(".names").name
    if (Path(source.path).parent / labels).is_file():
        graph.metadata["darknet.names"] = darknet_cfg.text_of(Source(contained(source.directory, labels, source.path)))
    _assign(graph, source, fields, layers, name)
    return graph


def _nbytes(weights: darknet_cfg.Weights) -> int:
    return sum(4 * math.prod(shape) for _, shape in weights)


def _configuration(source: Source) -> str | None:
    """Name of the ``.cfg`` for the weights: the same stem, or for ``darknet53.conv.74`` the same first word."""
    path = Path(source.path)
    names = dict.fromkeys((path.with_suffix(".cfg").name, f"{path.name.partition('.')[0]}.cfg"))
    return next((name for name in names if name != path.name and (path.parent / name).is_file()), None)


def _assign(graph: Graph, source: Source, fields: Fields, layers: list[darknet_cfg.Weights], cfg: str) -> None:
    for index, weights in enumerate(layers):
        if weights and not fields.left and graph.weights:
            graph.note(
                "W-DARKNET-PARTIAL",
                f"the file ends before layer {index} of the {len(layers)} in {cfg}: the weights of the first layers "
                "only",
            )
            return
        fields.need(_nbytes(weights), f"layer {index} of {cfg}")
        for name, shape in weights:
            size = 4 * math.prod(shape)
            graph.weights[f"layers.{index}.{name}"] = StoredTensor(
                F32, shape, Region(source, fields.skip(size, name), size)
            )
    if fields.left:
        why = f"{counted(fields.left, 'byte', verb='follows')} the last layer of {cfg}"
        hint = f"Check that {cfg} belongs to these weights, or move it away to read them as one flat tensor"
        raise FormatError("E-DARKNET-TRAILING", source.path, why, at=fields.at, hint=hint)


FORMAT = Format(
    name="darknet", title="Darknet weights, with the .cfg beside them", suffixes=(".weights",), sniff=sniff, read=read
)
