"""Files of a model with several graphs: one for each, called as Optimum and Transformers.js call them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...runtime.base.errors import FileAccessError, UsageError
from ...runtime.contract.architecture import MODEL
from ...runtime.contract.graph_files import GraphFiles
from ...runtime.ir.graph import Graph
from ...runtime.plugin.discovery import Plugins

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
MERGED = "_merged"
"""Suffix in Optimum's names of decoders that compute with and without a cache."""
DECODERS = (STEMS[DECODER] + MERGED, STEMS[DECODER])
"""The names, without suffix, of the decoders that run, the preferred one first."""
ENCODER_DECODER = (STEMS[ENCODER], *DECODERS, STEMS[WITH_PAST])
"""The names, without suffix, of the graphs of an encoder-decoder."""
SETS = Plugins("models.pipelines", "GRAPH_FILES")
"""Models of other kinds whose graphs are in files of their own."""
_END, _VARIANT = re.compile(r"[._-]|$"), re.compile(r"(?:[._-]\w+)?", re.ASCII)
"""End of a graph's name in that of a file, and the suffix of a variant of another precision, such as ``_quantized``."""


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
    """The files of an encoder-decoder, or of a model of `SETS`, by their names without suffix and variant, if the files
    of a directory are the graphs of one; of several variants the one without a suffix. None for other directories.

    A graph of another variant than the decoder is taken if its own one is missing.
    """
    chosen = _chosen(names, ENCODER_DECODER, DECODERS)
    if chosen is not None:
        return chosen if STEMS[ENCODER] in chosen else None
    for each in _sets(names):
        chosen = _chosen(names, tuple(each.graphs), each.needed[-1:])
        if chosen is not None and chosen.keys() >= set(each.needed):
            return chosen
    return None


def set_of(graphs: Mapping[str, Graph]) -> GraphFiles:
    """The declaration that the graphs of a model, by name, fit; UsageError for graphs with other inputs or outputs."""
    sets = [each for each in _sets(list(graphs)) if set(each.needed) <= graphs.keys() <= each.graphs.keys()]
    fitting = (each for each in sets if all(each.graphs[name].fits(graph) for name, graph in graphs.items()))
    chosen = next(fitting, sets[0])
    chosen.check(graphs)
    return chosen


def modules_of(names: Sequence[str]) -> dict[str, str] | None:
    """The files of a directory by the names of modules, if each holds the weights of a module of one model, without the
    module's name, and the directory no others; None for other directories."""
    suffix = Path(names[0]).suffix if names else ""
    for each in _sets(names):
        found = {module: module + suffix for module in each.graphs}
        if each.modules and suffix != GRAPH and sorted(found.values()) == sorted(names):
            return found
    return None


def decoder_of(graph: Graph) -> Graph:
    """Of an encoder-decoder of several graphs the decoder that runs; other models as they are."""
    if STEMS[ENCODER] not in graph.parts:
        return graph
    return next((graph.parts[kind] for kind in DECODERS if kind in graph.parts), graph)


def parts_of(decoder: Path) -> dict[str, Path] | None:
    """The files of the encoder-decoder that a decoder belongs to, by the names of the graphs; None if its name is not a
    decoder's. An encoder or a decoder with a past of another variant is taken if its own one is missing.

    Raises FileAccessError without an encoder.
    """
    kind, variant = _parsed(decoder.name, ENCODER_DECODER) or ("", "")
    if kind not in DECODERS:
        return None
    encoder = _beside(decoder, ENCODER, variant)
    if encoder is None:
        why = f"{STEMS[ENCODER]}.onnx is not beside the decoder"
        raise FileAccessError("E-ONNX-ENCODER", decoder, why, hint="Download the encoder into the same folder")
    past = _beside(decoder, WITH_PAST, variant) if kind == STEMS[DECODER] else None
    found = {ENCODER: encoder, DECODER: decoder}
    return found if past is None else {**found, WITH_PAST: past}


def refuse_lone(graph: Graph) -> None:
    """Raise UsageError for a graph that is one of a model of `SETS`, which runs with the others."""
    for each in (every for every in SETS.all() if not every.alone):
        name = next((name for name, signature in each.graphs.items() if signature.fits(graph)), None)
        if name is not None:
            path = Path(graph.files[0]) if graph.files else None
            why = f"the graph {name} of a model for {each.task} does not run alone"
            hint = f"Name the folder that has {', '.join(each.needed)}"
            raise UsageError("E-ONNX-PART", path, why, hint=hint)


def _sets(names: Sequence[str]) -> Iterator[GraphFiles]:
    """Declarations that the first file may belong to, by the beginnings of its name; other modules are not imported."""
    ends = (match.start() for match in _END.finditer(names[0])) if names else ()
    mentioned = (SETS.mentioning(f'"{names[0][:end]}"') for end in ends)
    return map(SETS.load, dict.fromkeys(itertools.chain.from_iterable(mentioned)))


def _chosen(names: Sequence[str], kinds: Sequence[str], leading: Sequence[str]) -> dict[str, str] | None:
    """The file of each kind of graph, in the variant of the leading one; None if there are other files too, or only
    several variants with a suffix."""
    parsed = {_parsed(name, kinds): name for name in names}
    found = {key: name for key, name in parsed.items() if key is not None}
    variants = sorted({variant for kind, variant in found if kind in leading})
    if len(found) != len(names) or not variants or (len(variants) > 1 and variants[0]):
        return None
    chosen = {kind: found.get((kind, variants[0]), found.get((kind, ""))) for kind in kinds}
    return {kind: name for kind, name in chosen.items() if name is not None}


def _parsed(name: str, kinds: Sequence[str]) -> tuple[str, str] | None:
    """The kind of graph in a file, and its variant, empty for the one without a suffix; None for other files."""
    plain = name.removesuffix(GRAPH)
    fits = [kind for kind in kinds if plain.startswith(kind) and _VARIANT.fullmatch(plain, len(kind))]
    return (kind := max(fits, key=len), plain[len(kind) :]) if fits and plain != name else None


def _beside(decoder: Path, graph: str, variant: str) -> Path | None:
    names = (f"{STEMS[graph]}{suffix}.onnx" for suffix in (variant, ""))
    return next((decoder.parent / name for name in names if (decoder.parent / name).is_file()), None)
