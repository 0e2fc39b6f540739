"""Files of a model with several graphs: one for each, called as Optimum and Transformers.js call them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...runtime.base.errors import FileAccessError
from ...runtime.contract.architecture import MODEL
from ...runtime.ir.graph import Graph

ENCODER, DECODER, WITH_PAST = "encoder", "decoder", "decoder_with_past"
STEMS = {
    MODEL: "model",
    ENCODER: "encoder_model",
    DECODER: "decoder_model",
    WITH_PAST: "decoder_with_past_model",
    "text": "text_model",
    "vision": "vision_model",
}
"""File names, without suffix, of graphs that Optimum does not call as we do; others have the graph's own name, such as
``vision_encoder``, ``embed_tokens``, ``text_encoder`` and ``vae_decoder``."""
GRAPH = ".onnx"
"""The suffix of files of graphs."""
MODULES = ("pnet", "rnet", "onet")
"""File names, without suffix, of the modules of a model that is not stored in one file: of weights, which lack the
module's name, or of graphs (MTCNN)."""
MERGED = "_merged"
"""What Optimum appends to the name of a decoder that computes with and without a cache."""
DECODERS = (STEMS[DECODER] + MERGED, STEMS[DECODER])
"""The names, without suffix, of the decoders that run, the preferred one first."""
_NAME = re.compile(
    rf"(?P<stem>{STEMS[DECODER]}{MERGED}|{STEMS[ENCODER]}|{STEMS[DECODER]}|{STEMS[WITH_PAST]})(?P<variant>[._-]\w+)?\.onnx",
    re.ASCII,
)
"""The graphs of an encoder-decoder; a variant of another precision has a suffix, such as ``_quantized``."""


def stem(name: str, graph: Graph) -> str:
    """The name, without suffix, of the file that holds a graph of a model.

    Args:
        name: of the graph in its task.
        graph: with its nodes.
    """
    from ...models.seq2seq.decoder import SWITCH

    merged = any(value.name == SWITCH for value in graph.inputs)
    return f"{STEMS.get(name, name)}{MERGED if merged else ''}"


def graphs_of(names: Sequence[str]) -> dict[str, str] | None:
    """The files of an encoder-decoder, by their names without suffix and variant, if the files of a directory are the
    graphs of one; of several variants the one without a suffix. So are `MODULES`. None for other directories.

    An encoder or a decoder with a past of another variant is taken if its own one is missing.
    """
    modules = modules_of(names)
    if modules is not None and modules[MODULES[0]].endswith(GRAPH):
        return modules
    found = {(match["stem"], match["variant"] or ""): name for name in names if (match := _NAME.fullmatch(name))}
    if len(found) != len(names) or all(kind != STEMS[ENCODER] for kind, _ in found):
        return None
    variants = sorted({variant for kind, variant in found if kind in DECODERS})
    if not variants or (len(variants) > 1 and variants[0]):
        return None
    kinds = (STEMS[ENCODER], *DECODERS, STEMS[WITH_PAST])
    chosen = {kind: found.get((kind, variants[0]), found.get((kind, ""))) for kind in kinds}
    return {kind: name for kind, name in chosen.items() if name is not None}


def modules_of(names: Sequence[str]) -> dict[str, str] | None:
    """The files of a directory by the names of `MODULES`, if it holds these and no others; None for other
    directories."""
    suffix = Path(names[0]).suffix if names else ""
    found = {module: module + suffix for module in MODULES}
    return found if sorted(found.values()) == sorted(names) else None


def decoder_of(graph: Graph) -> Graph:
    """Of a model of several graphs the decoder that runs; other models as they are."""
    return next((graph.parts[kind] for kind in DECODERS if kind in graph.parts), graph)


def parts_of(decoder: Path) -> dict[str, Path] | None:
    """The files of the model that a decoder belongs to, by the names of the graphs; None if its name is not a
    decoder's. An encoder or a decoder with a past of another variant is taken if its own one is missing.

    Raises FileAccessError if there is no encoder.
    """
    match = _NAME.fullmatch(decoder.name)
    if match is None or match["stem"] not in DECODERS:
        return None
    encoder = _beside(decoder, ENCODER, match["variant"])
    if encoder is None:
        why = f"{STEMS[ENCODER]}.onnx is not beside the decoder"
        raise FileAccessError("E-ONNX-ENCODER", decoder, why, hint="Download the encoder into the same folder")
    past = _beside(decoder, WITH_PAST, match["variant"]) if match["stem"] == STEMS[DECODER] else None
    found = {ENCODER: encoder, DECODER: decoder}
    return found if past is None else {**found, WITH_PAST: past}


def _beside(decoder: Path, graph: str, variant: str | None) -> Path | None:
    names = (f"{STEMS[graph]}{suffix}.onnx" for suffix in (variant or "", ""))
    return next((decoder.parent / name for name in names if (decoder.parent / name).is_file()), None)
