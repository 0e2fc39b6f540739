"""Opens a file, a shard index, a model directory or a hub repository as one graph, from headers only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...runtime.base.errors import Error, FileAccessError, FormatError, UnsupportedError
from ...runtime.base.gc_pause import unsearched
from ...runtime.base.units import counted
from ...runtime.base.untrusted.json import parse
from ...runtime.contract.architecture import COMPONENT
from ...runtime.contract.format import ReadOptions
from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.tensor.file import Source, contained
from ...runtime.tensor.storage import Region, Storage
from . import hub, model_directory
from .connected_pipelines import stages_of
from .detect_format import detect
from .graph_files import modules_of
from .locate import located
from .mmproj_file import add_mmproj, fetch_mmproj
from .model_directory import CONFIG as CONFIG
from .model_directory import INDEX, listed
from .model_files import MODEL_INDEX, component_files, component_folders, models_of
from .module_files import module_files
from .shard_set import NUMBERED, is_shard, members

CONFIG_LIMIT = 2**24
TWICE_SHOWN = 3
"""Tensors that two shards have, named in a note."""
OPEN_CLIP_CONFIG = "open_clip_config.json"
MODEL_KEYS = (
    "model_type", "architectures", "architecture", "vocab_size", "prompt_embed_dim", "encoder_rates", "_class_name",
    "axes_dim",
)  # fmt: skip
"""Keys of a model's config.json, at least one of which is present."""
CTRANSLATE2_KEY = "suppress_ids"
"""A key of the config.json next to a Whisper of CTranslate2."""
DESCRIBING = {CONFIG: (*MODEL_KEYS, CTRANSLATE2_KEY), OPEN_CLIP_CONFIG: ("model_cfg",)}
"""Files that describe a model, with keys of which they have one."""
ARCHITECTURE = "general.architecture"
SHARD = re.compile(r"-\d{5}-of-\d{5}\.")
LAYERS = "darknet.cfg"
"""Metadata of files that state the layers themselves."""
DARKNET_SUFFIXES = (".cfg", ".names")
ATTACHED_SUFFIXES = (".json", ".txt", ".model", ".spm", ".jinja", ".md", ".tiktoken", *DARKNET_SUFFIXES)
ATTACHED_STEMS = (
    "config",
    "open_clip_config",
    "generation_config",
    "tokenizer",
    "special_tokens",
    "added_tokens",
    "vocab",
    "merges",
    "chat_template",
    "preprocessor_config",
    "processor_config",
    "README",
)
ATTACHED_MOST = 100
ATTACHED_LIMIT = 64 * 2**20


@unsearched
def open_model(
    path: str | os.PathLike[str],
    options: ReadOptions | None = None,
    *,
    format: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    upgraded: bool = True,
    dequantized: bool = True,
    parts: bool = False,
    encoder: bool = True,
) -> Graph:
    """The graph of a model file, ``*.index.json``, directory, or ``hf://owner/repo[@revision][/file]``.

    A file or index of bare weights with a model's config.json next to it is that model, as its directory is: with
    tokenizer and configuration.

    Args:
        options: how to read.
        format: format name, None to detect it by content.
        revision, offline: for ``hf://``: which revision, and whether only the cache may be used.
        upgraded: whether nodes are taken to the newest opset, or left as the file has them, with operators that are
            only named.
        dequantized: whether the weights of a model whose config.json says that it is quantized (GPTQ, bitsandbytes ...)
            are numbers, computed when they are read, or the tensors that the file has.
        parts: whether a directory of an exported model with several graphs is opened, as one with `Graph.parts`, or
            refused with the names of its files; and whether the GGUF file of a language model gets its `Graph.mmproj`.
        encoder: whether that is looked for next to the file, or left to the caller.

    Raises:
        Error: with the file, the byte offset and a hint.
    """
    options = options or ReadOptions()
    local = located(path, revision, offline)
    graph = _opened(local, options, format, parts)
    if parts and encoder:
        if not offline and hub.is_uri(path):
            fetch_mmproj(graph, os.fspath(path), revision)
        add_mmproj(graph, local, lambda file: read_file(file, options))
    stated = CONFIG in graph.attachments or any(name.endswith(".SCB") for name in graph.weights)
    if dequantized and stated and not graph.parts:
        from .prequantized import unpack

        unpack(graph)
    for each in networks(graph):
        if upgraded and not each.newest:
            from ...runtime.ir.opset_upgrade import upgrade

            upgrade(each)
    return graph


def networks(graph: Graph) -> list[Graph]:
    """The graphs that a model consists of, without the models in which they are."""
    return [each for part in graph.parts.values() for each in networks(part)] or [graph]


def _opened(local: Path, options: ReadOptions, format: str | None, parts: bool) -> Graph:
    if os.path.isdir(local):
        found = model_directory.exported(local) if parts else None
        if found is not None:
            return _exported(local, *found, options, format)
        stages = stages_of(local) if parts else None
        if stages is not None:
            opened = {name: _opened(path, options, format, False) for name, path in stages.models.items()}
            whole = _joined(local, opened)
            whole.attachments |= stages.files()
            return whole
        models = models_of(local) if parts else None
        if models is not None:
            indexed = (local / MODEL_INDEX).is_file()
            opened = {
                name: (_component(name, local, options, format) if indexed else None)
                or _opened(path, options, format, False)
                for name, path in models.items()
            }
            return _joined(local, opened)
        return _directory(local, options, format)
    graph = _index(local, options, format) if local.name.endswith(INDEX) else read_file(local, options, format)
    if _is_whole_model(local, graph):
        graph.attachments |= attachments(local.parent, graph)
    elif not graph.nodes and LAYERS not in graph.metadata:
        graph.attachments |= _darknet_files(local)
    return graph


def _darknet_files(path: Path) -> dict[str, Storage]:
    """The layers and labels of a detector of darknet, in files with the stem of its weights."""
    found: dict[str, Storage] = {}
    for name in (path.stem + suffix for suffix in DARKNET_SUFFIXES):
        if name != path.name and path.with_name(name).is_file():
            source = Source(contained(path.parent, name, str(path)))
            found[name] = Region(source, 0, source.size)
    return found


def _is_whole_model(path: Path, graph: Graph) -> bool:
    """Whether a file has all weights of the model that the configuration next to it describes, and does not itself say
    what it is."""
    if graph.nodes or ARCHITECTURE in graph.metadata or SHARD.search(path.name):
        return False
    return any(_has_key(path.parent / name, keys) for name, keys in DESCRIBING.items())


def _has_key(path: Path, keys: Sequence[str]) -> bool:
    """Whether a file is a JSON object with one of the keys."""
    if not path.is_file():
        return False
    try:
        source = Source(path)
        config = parse(source.read(0, min(source.size, CONFIG_LIMIT)), source, 0, "E-CONFIG-JSON", constants=True)
    except Error:
        return False
    return isinstance(config, dict) and any(key in config for key in keys)


def read_file(path: Path, options: ReadOptions, format: str | None = None) -> Graph:
    """One file, in whatever format it is."""
    source = Source(path)
    return detect(source, format).read(source, options)


def merged(graphs: Iterable[Graph], what: str) -> Graph:
    """Several graphs as one; a tensor name that two of them have is an error."""
    whole, *rest = graphs
    for part in rest:
        if whole.nodes or whole.parts or part.nodes or part.parts:
            raise UnsupportedError(
                "E-MERGE-NODES", part.files[0], "models with graphs cannot be merged", hint="Convert them separately"
            )
        twice = whole.weights.keys() & part.weights.keys()
        if twice:
            raise FormatError(
                "E-SHARD-TWICE",
                part.files[0],
                f"tensor {min(twice)!r} is also in {what} before it",
                hint="Is a shard given twice, or from another download?",
            )
        whole.weights.update(part.weights)
        whole.metadata |= {key: value for key, value in part.metadata.items() if key not in whole.metadata}
        whole.attachments |= part.attachments
        whole.notes += part.notes
        whole.files += part.files
    return whole


def _index(path: Path, options: ReadOptions, format: str | None) -> Graph:
    source = Source(path)
    source.budget.charge(source.size, "the index")
    value = parse(source.read(0, source.size), source, 0, "E-INDEX-JSON")
    names = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(names, dict) or not names or not all(isinstance(shard, str) for shard in names.values()):
        raise FormatError("E-INDEX-MAP", path, "has no weight_map of tensor names to file names")
    paths = {
        name: contained(path.parent, name, source.path) for name in sorted({*names.values(), *_unlisted(path, names)})
    }
    absent = [name for name, shard in paths.items() if not os.path.exists(shard)]
    if len(absent) == len(paths):
        paths |= {name: contained(path.parent, name, source.path) for name in _numbered(path)}
    shards = {name: read_file(shard, options, format) for name, shard in paths.items() if name not in absent}
    held_by = {name: frozenset(part.weights) for name, part in shards.items()}
    held = {tensor for part in shards.values() for tensor in part.weights}
    missing = names.keys() - held
    if missing and absent:
        why = f"the shard {absent[0]!r} is missing"
        raise FileAccessError("E-SHARD-MISSING", path, why, hint="Download all shards into the same folder")
    if missing:
        why = f"tensor {min(missing)!r} is in none of the {counted(len(shards), 'shard')}"
        raise FormatError("E-INDEX-TENSORS", path, why, hint="Check that all shards are from one download")
    graph = merged(shards.values(), "a shard")
    elsewhere = sorted(tensor for tensor in held if tensor not in held_by.get(names.get(tensor, ""), ()))
    if elsewhere:
        why = f"{path.name} has no or another file for {counted(len(elsewhere), 'tensor')} of its shards"
        graph.note("W-INDEX", f"{why}, such as {elsewhere[0]!r}; all tensors of the shards are read")
    return graph


def _unlisted(path: Path, names: Mapping[str, str]) -> list[str]:
    """Shards next to an index that belong to the set of its shards, none of whose tensors it names."""
    numbered = next((name for name in names.values() if is_shard(name) and os.sep not in name), None)
    match = None if numbered is None else NUMBERED.fullmatch(numbered)
    if match is None:
        return []
    end = f"-of-{match['count']}{match['suffix']}"
    return [
        name
        for name in listed(path.parent)
        if name.startswith(f"{match['stem']}-") and name.endswith(end) and is_shard(name)
    ]


def _numbered(path: Path) -> list[str]:
    """The shards next to an index that have its name and a number, if they are one set."""
    stem, suffix = os.path.splitext(path.name.removesuffix(INDEX))
    found = {name: match for name in listed(path.parent) if is_shard(name) and (match := NUMBERED.fullmatch(name))}
    own = {name: match["count"] for name, match in found.items() if (match["stem"], match["suffix"]) == (stem, suffix)}
    return list(own) if len(set(own.values())) == 1 else []


def _exported(
    folder: Path, files: dict[str, Path], others: list[str], options: ReadOptions, format: str | None
) -> Graph:
    """One model of the graphs in several files of a directory, `others` being variants of them."""
    graphs = {part: read_file(file, options, format) for part, file in files.items()}
    whole = _joined(folder, graphs)
    if others:
        whole.note("W-DIR-COPIES", model_directory.skipped(", ".join(file.name for file in files.values()), others))
    for graph in graphs.values():
        graph.attachments = dict(whole.attachments)
    return whole


def _component(name: str, folder: Path, options: ReadOptions, format: str | None) -> Graph | None:
    """A component of a pipeline whose graphs have a folder each; None for one with a folder of its own."""
    folders, others = component_folders(name, folder)
    if not folders:
        return None
    graphs = {f"{COMPONENT}{end}": _opened(path, options, format, False) for end, path in folders.items()}
    first = next(iter(graphs.values()))
    whole = Graph(format=first.format, parts=graphs, attachments=first.attachments)
    for part, graph in graphs.items():
        whole.weights |= {f"{part}/{weight}": tensor for weight, tensor in collect_weights(graph).items()}
        whole.files += graph.files
        whole.external_files += graph.external_files
        whole.notes += graph.notes
    if others:
        chosen = ", ".join(path.name for path in folders.values())
        whole.note("W-DIR-COPIES", model_directory.skipped(chosen, others))
    return whole


def _joined(folder: Path, graphs: dict[str, Graph]) -> Graph:
    """One model of the graphs, or of the models, in several files of a directory."""
    whole = Graph(format=next(iter(graphs.values())).format, parts=graphs)
    for part, graph in graphs.items():
        whole.weights |= {f"{part}/{name}": tensor for name, tensor in collect_weights(graph).items()}
        whole.metadata |= {f"{part}/{key}": value for key, value in graph.metadata.items()}
        whole.files += graph.files
        whole.external_files += graph.external_files
        whole.notes += graph.notes
    whole.attachments = attachments(folder, whole)
    return whole


def _directory(folder: Path, options: ReadOptions, format: str | None) -> Graph:
    modules = modules_of(model_directory.weights(folder))
    if modules is not None:
        graphs = (_module(name, read_file(folder / file, options, format)) for name, file in modules.items())
        graph = merged(graphs, "a module")
        graph.attachments |= attachments(folder, graph)
        return graph
    chosen, names = model_directory.find(folder)
    if chosen.name.endswith(INDEX):
        graph = _index(chosen, options, format)
    elif is_shard(chosen.name):
        parts = members(chosen)
        graph = merged([read_file(part, options, format) for part in parts], "a shard")
        graph.note(
            "W-INDEX", f"{folder.name} has no index: the tensors of its {counted(len(parts), 'shard', verb='is')} read"
        )
    else:
        graph = read_file(chosen, options, format)
    others = [name for name in names if not name.endswith(INDEX) and str(chosen.parent / name) not in graph.files]
    told = model_directory.copies(folder, chosen.name, others, names)
    if told is not None:
        graph.note("W-DIR-COPIES", told)
    graph.attachments |= attachments(folder, graph)
    return graph


def _module(name: str, graph: Graph) -> Graph:
    """A module whose weights have its name in front of theirs."""
    graph.weights = {f"{name}.{weight}": tensor for weight, tensor in graph.weights.items()}
    return graph


def attachments(folder: Path, graph: Graph) -> dict[str, Storage]:
    """The tokenizer, configuration and documentation files of a model directory, and those of the modules of
    sentence-transformers, by their names relative to it; files that are left out are noted on `graph`.

    A folder of very many texts is a data set's as well as a model's; then only names that every model uses are taken.
    """
    names = [
        name
        for name in listed(folder)
        if name.endswith(ATTACHED_SUFFIXES) and not name.endswith(INDEX) and os.path.isfile(folder / name)
    ]
    if len(names) > ATTACHED_MOST:
        usual = [name for name in names if name.startswith(ATTACHED_STEMS)][:ATTACHED_MOST]
        graph.note("W-ATTACHMENT", f"{len(names) - len(usual):,} of {len(names):,} text files are not copied")
        names = usual
    names += module_files(folder, names)
    names += component_files(folder) if MODEL_INDEX in names else []
    found: dict[str, Storage] = {}
    for name in names:
        attachment = Source(contained(folder, name, str(folder)))
        if attachment.size <= ATTACHED_LIMIT:
            found[name] = Region(attachment, 0, attachment.size)
        else:
            graph.note("W-ATTACHMENT", f"{name} has over {ATTACHED_LIMIT >> 20} MiB and is not copied")
    return found
