"""Translation of a model's weights and hyper-parameters to the names of another format, or to an ONNX graph.

Hugging Face's names become GGUF's in a GGUF file, GGUF's become Hugging Face's in a model directory, either becomes
nodes in an ONNX file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import (
    CANDLE,
    FEATURE_EXTRACTION,
    GGUF,
    HF,
    MODEL,
    ORIGINAL,
    TEXT_CLASSIFICATION,
    TIMM,
    TORCHVISION,
    weight_slots,
)
from ...runtime.contract.format import Format
from ...runtime.contract.naming import CONVENTIONS, COUNTER
from ...runtime.ir.graph import Graph, Meta
from ...runtime.plugin.discovery import below
from ...runtime.tensor.dtype import F32
from ...runtime.tensor.storage import Held, Storage
from ...runtime.tensor.stored_tensor import StoredTensor
from ..console.output import human_size
from ..open.model_files import CLASS
from ..open.open_model import CONFIG, MODEL_KEYS
from .gguf_file_type import FILE_TYPE_KEY, FILE_TYPES, QUANTIZATION_VERSION, VERSION_KEY
from .model_card import GENERATION, general
from .model_facts import LEFT_ALONE
from .translation_options import TranslationOptions

if TYPE_CHECKING:
    from ..load.bind import Model

Rules = tuple[tuple[str, str], ...]
OWN_NAMES = below(__package__, "TRANSLATION")
"""By the name of a format of one architecture: functions `(source, model, graph)` to rules for dtypes."""
TEXT_ONLY = "W-ARCH-TEXT"
"""The note of parts that are left out next to a language model."""
POOLER = "pooler."
"""How the names of weights that summarize a text begin."""
EXPERTS_ALONE = "mxfp4"
"""A type that names a file's type where only experts have it, fewer than other tensors."""
SWITCHES = {
    "attention_bias": ".attn.q.bias", "attention_out_bias": ".attn.o.bias", "mlp_bias": ".mlp.up.bias",
}  # fmt: skip
"""By the switch of a config.json by which transformers gives layers a weight: how the name of that weight ends."""
OWN_SWITCHES = {
    "cohere": {"use_qk_norm": ".attn.q_norm.weight"},
    "deepseek_v2": {"attention_bias": ".attn.kv_a.bias"},
    "deepseek_v3": {"attention_bias": ".attn.kv_a.bias"},
    "ernie4_5": {"use_bias": ".attn.q.bias"},
    "falcon": {"bias": ".attn.qkv.bias"},
    "glm4_moe": {"use_qk_norm": ".attn.q_norm.weight"},
    "lfm2": {"conv_bias": ".conv.bias"},
    "phi": {"qk_layernorm": ".attn.q_norm.weight"},
    "phimoe": {"lm_head_bias": "head.bias"},
    "qwen2_moe": {"qkv_bias": ".attn.q.bias"},
    "stablelm": {"use_qkv_bias": ".attn.q.bias", "qk_layernorm": ".attn.q_norm.weight"},
    "starcoder2": {"use_bias": ".attn.q.bias"},
}
"""Switches that the configuration of one architecture has."""
RULE_NAMES = 100
"""Names in the pattern of one rule."""
DEFAULTS = TranslationOptions()
SIZES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (0.0, "K"))


def graph_names(graph: Graph, format: Format) -> tuple[str, ...]:
    """The names of the graphs that `format` has of a model: those of its task where weights become nodes, else `MODEL`
    alone."""
    if graph.nodes or not format.graphs:
        return (MODEL,)
    from ..load.canonical_names import canonical_names
    from ..load.recognise import described, identified

    newer = canonical_names(graph)
    if described(newer) is None:
        return (MODEL,)
    architecture, _, config = identified(newer)
    return tuple(architecture.task(config.values.get("task")).graphs)


def translated(
    graph: Graph, format: Format, directory: bool, options: TranslationOptions = DEFAULTS, name: str = MODEL
) -> Rules:
    """Change a graph of weights into what `format` calls them, where its architecture is known; rules for dtypes that
    the output needs.

    Args:
        directory: whether the output is a model directory.
        name: which graph of the model's task the nodes are.

    Raises UnsupportedError for a model that the output cannot describe, unless `weights_only`.
    """
    carried, weights_only = options.attachments, options.weights_only
    if graph.format == format.name == "gguf":
        return ()
    from ...models.preprocess.as_nodes import take_bytes
    from ...models.preprocess.stated_preparation import letterbox_of, stated_preparation
    from ...runtime.contract.weight_binding import list_names, unbind
    from ..load.bind import bind_model
    from ..load.canonical_names import canonical_names
    from ..load.recognise import described, stated
    from ..load.wrapper_names import unwrapped
    from ..open.diffusion.single_file import naming_of
    from .diffusion.to_picture_gguf import picture_gguf, to_picture_gguf, to_pipeline_gguf
    from .held_files import add_files, lacking_files
    from .reranker import ranker, refuse_ranker

    if format.architecture:
        newer = canonical_names(graph)
        known = graph.format != format.name and described(newer) is not None
        return OWN_NAMES.load(format.name)(newer, bind_model(newer), graph) if known else ()
    wanted = (
        GGUF if format.name == "gguf" else HF if directory and not format.graphs else "graph" if format.graphs else None
    )
    if options.names is not None and wanted in (HF, None):
        wanted = options.names
    if graph.nodes or wanted is None:
        return ()
    if wanted == GGUF and naming_of(graph) is not None and not weights_only:
        return to_pipeline_gguf(graph)
    plain = unwrapped(graph) if directory else graph
    if plain is not graph and described(plain) is not None:
        graph.weights, graph.notes = plain.weights, plain.notes
    encoder = _encoder(graph) if wanted == GGUF and not weights_only else None
    newer = canonical_names(graph, text_only=wanted == GGUF)
    found = described(newer)
    said = stated(graph)
    in_hf_names = said is not None and said[0] == HF and "model_type" in said[1]
    multimodal = newer is not graph and wanted == HF and in_hf_names
    of_diffusers = said is not None and CLASS in said[1] and found is not None and found[0] == HF
    unchanged = newer is graph and found is not None and found[0] == wanted and (found == said or of_diffusers)
    if found is None or multimodal or unchanged:
        return ()
    if options.names in (None, found[0]) and wanted == HF and found[0] in (TIMM, TORCHVISION, CANDLE, ORIGINAL):
        return ()
    completed = newer is not graph and found[0] == HF and found == stated(newer)
    graph.weights, graph.metadata, graph.notes = newer.weights, newer.metadata, newer.notes
    graph.attachments, graph.mmproj = newer.attachments, None
    if encoder is not None:
        graph.notes = [note for note in graph.notes if note.code != TEXT_ONLY]
    try:
        model = bind_model(graph)
    except UnsupportedError as error:
        if wanted == "graph":
            raise
        return _untranslated(graph, wanted, error.why, weights_only)
    graph.arch = model.architecture.name
    _tell_left_out(graph, model)
    if options.names is not None and wanted == options.names:
        _check_convention(graph, model, wanted, directory)
    if wanted == HF and model.architecture.modules and (lost := model.nameless(HF)):
        why = f"transformers' {model.architecture.title} has no place for {list_names(lost)}"
        return _untranslated(graph, wanted, why, weights_only)
    if wanted == GGUF and (picture := picture_gguf(model)) is not None:
        return to_picture_gguf(graph, model, picture)
    if wanted == GGUF and not model.architecture.gguf:
        return _untranslated(
            graph, wanted, f"GGUF has no architecture for {model.architecture.title} models", weights_only
        )
    model = ranker(graph, model) if wanted == GGUF else model
    if wanted == GGUF and (lost := without_place(graph, model)):
        why = f"GGUF has no place for {list_names(lost)} of {model.architecture.title} models for {model.task.name}"
        return _untranslated(graph, wanted, why, weights_only)
    if wanted == GGUF:
        rules = _to_gguf(graph, model, carried)
        if encoder is not None:
            _add_encoder(graph, *encoder)
        return rules
    if wanted == HF and directory:
        refuse_ranker(model)
        lacking = lacking_files(graph, model, exported=False) if carried else {}
        if completed:
            graph.attachments |= _tokenizer_files(graph) if carried else {}
            graph.metadata = {"format": "pt"}
        else:
            _to_hf(graph, model, carried)
        add_files(graph, lacking)
    elif wanted in CONVENTIONS:
        graph.weights = unbind(model.architecture, model.config, model.weights, wanted)
        graph.metadata, graph.attachments = {"format": "pt"}, {}
    else:
        preparation = stated_preparation(graph, letterbox_of(model.config)) if options.with_preprocessing else None
        _to_graph(graph, model.with_settings(options.network_settings), name, options.blocks, carried)
        graph.metadata |= _detector_keys(graph, model)
        if preparation is not None:
            take_bytes(graph, preparation, graph.files[0] if graph.files else None)
    return ()


def _detector_keys(graph: Graph, model: Model) -> dict[str, str]:
    """The labels and the size of pictures, as exports of YOLO networks state them; empty for other models."""
    from ...models.preprocess.ultralytics_export import export_keys

    size, count = model.config.values.get("letterbox"), model.config.values.get("labels")
    if size is None or count is None:
        return {}
    named = model.config.values.get("label_names") or [f"LABEL_{number}" for number in range(count)]
    found = any(output.name == "keypoints" for output in graph.outputs)
    return export_keys(named, size, "pose" if found else "detect")


def _check_convention(graph: Graph, model: Model, wanted: str, directory: bool) -> None:
    """UnsupportedError if weights of the model have no names in a library, or a directory of its files would need a
    configuration that is not known."""
    path, title = graph.files[0] if graph.files else None, model.architecture.title
    known = {HF} if model.architecture.model_types else set()
    known |= set(getattr(model.architecture.implied, "conventions", ()))
    if wanted not in known:
        why = f"{title} models have no names of {wanted}"
        hint = f"Known: {', '.join(sorted(known))}" if known else "Leave out --names"
        raise UnsupportedError("E-OUT-NAMES", path, why, hint=hint)
    lost = model.nameless(wanted)
    if lost:
        raise UnsupportedError(
            "E-OUT-NAMES", path, f"{wanted} has no names for {', '.join(lost[:3])} of {title} models"
        )
    if directory and wanted != HF:
        why = f"directories of {wanted} need a config.json that names one of its models"
        raise UnsupportedError("E-OUT-NAMES", path, why, hint="Write a file such as OUT.safetensors")


def _untranslated(graph: Graph, wanted: str, why: str, weights_only: bool) -> Rules:
    """Leave names and parameters as they are, where that was asked for, or nothing says that the weights are a
    model's."""
    from ..load.recognise import stated

    said = stated(graph)
    if not weights_only and said is not None and (said[0] == GGUF or any(said[1].get(key) for key in MODEL_KEYS)):
        kind, lacks = (
            ("a GGUF file", "general.architecture") if wanted == GGUF else ("a model directory", "a config.json")
        )
        hint = "Use --weights-only to write the tensors under their original names, or write a single .safetensors file"
        raise UnsupportedError(
            "E-OUT-ARCH",
            graph.files[0] if graph.files else None,
            f"{why}, and {kind} without {lacks} is not a model",
            hint=hint,
        )
    graph.note("W-ARCH", f"{why}: names and parameters are not affected")
    return ()


def _tell_left_out(graph: Graph, model: Model) -> None:
    """Note the matrices of a file that are not part of the computed model, such as layers that predict more than
    one token."""
    from ...runtime.contract.weight_binding import ignored

    unused = [
        name
        for name in ignored(model.architecture, model.config, graph.weights)
        if len(graph.weights[name].shape) in (2, 3)
    ]
    if unused:
        nbytes = sum(graph.weights[name].nbytes for name in unused)
        what = f"{counted(len(unused), 'matrix', 'matrices')} skipped ({human_size(nbytes)})"
        why = f"{what}, not part of {model.architecture.title}"
        graph.event("W-ARCH-UNUSED", f"{why}: {', '.join(sorted(unused)[:3])} ...")


def without_place(graph: Graph, model: Model) -> list[str]:
    """The weights that GGUF files of the architecture do not store, neither as tensors nor in the keys that they are
    computed from; the only heads there are those of text classifiers. A pooler, which hidden states do not depend on,
    is left out with a note."""
    slots = weight_slots(model.architecture, model.config)
    placed = {ours for row, _, ours in slots if row.stored(GGUF) or row.compute is not None}
    heads = {row.name for row in model.task.weights if not row.stored(GGUF) and model.task.name != TEXT_CLASSIFICATION}
    lost = [name for name in model.weights if (name not in placed or name in heads) and not name.endswith(COUNTER)]
    poolers = [name for name in lost if name.startswith(POOLER)]
    if poolers and len(poolers) == len(lost):
        graph.event("W-GGUF-POOLER", f"GGUF has no place for {', '.join(poolers)}: hidden states are not affected")
    return [name for name in lost if name not in poolers]


def _to_gguf(graph: Graph, model: Model, carried: bool) -> Rules:
    """Names, parameters and tokenizer; vectors and norms stay f32, as llama.cpp takes nothing else for them."""
    from ...models.pipelines.sentence_modules import embeds
    from ...runtime.contract.weight_binding import config_keys, unbind
    from .held_files import held_keys, keys_for_gguf
    from .lossy_check import check_expressible
    from .model_card_writer import carried_keys
    from .required_weights import with_required_weights
    from .reranker import ranking_keys
    from .sentence_files import pooling_key, with_dense_modules

    if model.lacks_head and embeds(graph):
        model = model.for_task(FEATURE_EXTRACTION)
    model = with_dense_modules(graph, model)
    model.require_head()
    model = with_required_weights(graph, model)
    check_expressible(graph, model)
    graph.weights = unbind(model.architecture, model.config, model.weights, GGUF)
    own = {key: value for key, value in graph.metadata.items() if key.startswith("general.")}
    keys = config_keys(model.architecture, GGUF, model.config) | pooling_key(graph, model)
    block = carried_keys(graph, model.architecture.gguf[0])
    general = {"general.architecture": model.architecture.gguf[0], **_general(graph, model, block), **own}
    held = {key: value for key, value in graph.metadata.items() if key.startswith("tokenizer.")}
    tokenizer = (held or keys_for_gguf(graph, model)) if carried and not model.architecture.modules else {}
    tokenizer |= ranking_keys(graph, model, tokenizer) if tokenizer else {}
    tokenizer |= held_keys(graph, model) if carried else {}
    others = {key: value for key, value in block.items() if key not in general}
    graph.metadata = {**general, **{key: _typed(value) for key, value in keys.items()}, **tokenizer, **others}
    graph.attachments = {}
    small = [name for name, tensor in graph.weights.items() if len(tensor.shape) < 2 or LEFT_ALONE.search(name)]
    groups = [small[start : start + RULE_NAMES] for start in range(0, len(small), RULE_NAMES)] or [[]]
    return tuple((rf"^(?:{'|'.join(map(re.escape, group))})\Z", "f32") for group in groups)


def _tokenizer_files(graph: Graph) -> dict[str, Storage]:
    """The tokenizer's files of a whole model that was read from two GGUF files, none for other models."""
    from .held_files import files_for_hf

    return files_for_hf(graph, None)


def _encoder(graph: Graph) -> tuple[Graph, str, dict[str, Any]] | None:
    """The file that llama.cpp has for the encoder and the projector of a multimodal model, and what that of the
    language model states: ``general.architecture``, empty for that of its family, and further keys. None for models
    that are stored otherwise."""
    from ...runtime.contract.weight_binding import named_model_type
    from ..load.bind import bind_model
    from ..load.canonical_names import canonical_names
    from ..load.recognise import described
    from ..mmproj.split import split

    if graph.mmproj is not None or "general.architecture" in graph.metadata:
        return None
    whole = canonical_names(graph)
    found = described(whole)
    kind = found[1].get("model_type") if found is not None and found[0] == HF else None
    family = named_model_type(kind, found[1]) if found is not None and isinstance(kind, str) else None
    if family is None or not family.mmproj:
        return None
    model = bind_model(whole)
    made = split(whole, model.architecture, model.config, model.weights)
    count = sum(tensor.count for tensor in made.weights.values())
    card = {f"general.{key}": value for key, value in general(graph, count, size_label(made, 0)).items()}
    keys = {key: _typed(value) for key, value in made.metadata.items()}
    made.metadata = {**keys, **card, VERSION_KEY: _typed(QUANTIZATION_VERSION)}
    mmproj = next(each for each in family.mmproj if each.accepts(model.config))
    return made, mmproj.text, mmproj.text_keys(model.config, model.weights)


def _add_encoder(graph: Graph, encoder: Graph, text: str, further: Mapping[str, Any]) -> None:
    """Give a language model in GGUF's names its encoder, and the architecture that llama.cpp has for it next to one."""
    graph.mmproj = encoder
    own = str(graph.metadata["general.architecture"])
    name = text or own
    named = {
        f"{name}.{key.removeprefix(f'{own}.')}" if key.startswith(f"{own}.") else key: value
        for key, value in graph.metadata.items()
    }
    graph.metadata = {**named, "general.architecture": name, **{f"{name}.{k}": _typed(v) for k, v in further.items()}}


def name_file_type(graph: Graph) -> None:
    """Say in the metadata of a model in GGUF's names which dtype most of its matrices have, where nothing says it."""
    import numpy

    if "general.architecture" in graph.metadata and FILE_TYPE_KEY not in graph.metadata:
        dtypes = Counter(tensor.dtype.name for tensor in graph.weights.values() if len(tensor.shape) > 1)
        numbers = {known.base: known.number for known in reversed(FILE_TYPES)}
        most = EXPERTS_ALONE if EXPERTS_ALONE in dtypes else dtypes.most_common(1)[0][0] if dtypes else ""
        number = numbers.get(most)
        if number is not None:
            graph.metadata[FILE_TYPE_KEY] = numpy.uint32(number)


def _typed(value: Any) -> Any:
    """A parameter in the types that GGUF files have it in."""
    import numpy

    if isinstance(value, bool | str):
        return value
    if isinstance(value, list | tuple):
        kinds = {type(item) for item in value}
        if kinds == {str}:
            return list(value)
        return numpy.asarray(value, numpy.float32 if float in kinds else numpy.int32 if kinds == {int} else None)
    return numpy.float32(value) if isinstance(value, float) else numpy.uint32(value)


def _general(graph: Graph, model: Model, block: Mapping[str, Meta]) -> dict[str, Any]:
    """Metadata that llama.cpp's converter writes for every model, and the block of a card that was made of a GGUF
    file."""
    import numpy

    from .model_card_writer import with_block

    label = size_label(graph, model.config.values.get("experts", 0))
    card = with_block(general(graph, sum(tensor.count for tensor in graph.weights.values()), label), block)
    said = {f"general.{key}": value for key, value in card.items()}
    return {"general.type": "model", **said, VERSION_KEY: numpy.uint32(QUANTIZATION_VERSION)}


def size_label(graph: Graph, experts: int) -> str:
    """Such as ``1.1B``, or ``8x7B`` where there are experts: how many of them, and the size of a model with one."""
    of_experts = sum(
        tensor.count for name, tensor in graph.weights.items() if "_exps." in name and len(tensor.shape) > 2
    )
    count = (
        sum(tensor.count for tensor in graph.weights.values())
        - of_experts
        + (of_experts // experts if experts else of_experts)
    )
    scale, suffix = next((scale, suffix) for scale, suffix in SIZES if count > scale)
    scaled = count / (scale or 1e3)
    digits = max(0, 2 - len(str(round(scaled)).lstrip("0")))
    return f"{f'{experts}x' if experts else ''}{scaled:.{digits}f}{suffix}"


def _to_hf(graph: Graph, model: Model, carried: bool) -> None:
    """Names, config.json, and the tokenizer's files."""
    from ...runtime.contract.weight_binding import unbind
    from .lossy_check import check_expressible

    if model.architecture.modules:
        check_expressible(graph, model, HF)
    graph.weights = unbind(model.architecture, model.config, model.weights, HF)
    graph.attachments = _files(graph, model, carried)
    graph.metadata = {"format": "pt"}


def _files(graph: Graph, model: Model, carried: bool) -> dict[str, Storage]:
    """config.json and the tokenizer's files, as transformers has them."""
    from ...runtime.contract.weight_binding import config_keys
    from .held_files import files_for_hf, files_of_held, role_ids
    from .model_card_writer import card_file, sampling
    from .sentence_files import files_of_pooling

    said = config_keys(model.architecture, HF, model.config)
    files = files_for_hf(graph, model.config.values.get("context")) if carried else {}
    generation = _json(files.get(GENERATION)) | _json(graph.attachments.get(GENERATION)) | sampling(graph)
    if generation:
        files[GENERATION] = Held(json.dumps(generation, indent=2, ensure_ascii=False).encode())
    files |= {**files_of_pooling(graph, model), **files_of_held(graph)} if carried else {}
    files |= card_file(graph, str(graph.metadata.get("general.architecture")), generation)
    tied = {} if model.architecture.modules else {"tie_word_embeddings": "head.weight" not in model.weights}
    kind = (*model.architecture.model_types, model.architecture.name)[0]
    config = {"model_type": kind, **said, **_switches(model), **role_ids(files), **tied}
    return {CONFIG: Held(json.dumps(config, indent=2, default=_plain).encode()), **files}


def _json(storage: Storage | None) -> dict[str, Any]:
    return {} if storage is None else dict(json.loads(bytes(storage.read(0, storage.nbytes))))


def _switches(model: Model) -> dict[str, bool]:
    """Switches by which transformers gives layers biases and norms, as the weights have them."""

    def has(ending: str) -> bool:
        return any(name.endswith(ending) for name in model.weights)

    found = {key: has(ending) for key, ending in SWITCHES.items() if has(f"{ending.removesuffix('.bias')}.weight")}
    own = {key: has(ending) for key, ending in OWN_SWITCHES.get(model.architecture.name, {}).items()}
    return {key: value for key, value in found.items() if value or key == "attention_bias"} | own


def _plain(value: Any) -> Any:
    """A numpy scalar or array as JSON has it."""
    found = value.tolist()
    return float(f"{found:.7g}") if isinstance(found, float) and math.isfinite(found) else found


def _in_f32(graph: Graph, model: Model, kept: Sequence[str]) -> dict[str, StoredTensor]:
    """Weights that can be computed with: those of floating-point types other than f32 and `kept` become f32, blocks
    stay."""
    changed = {
        name: tensor.cast(F32) for name, tensor in model.weights.items()
        if tensor.dtype.kind == "float" and tensor.dtype.name not in ("f32", *kept)
    }  # fmt: skip
    for name, count in Counter(model.weights[name].dtype.name for name in changed).items():
        if kept:
            graph.event(
                "W-ONNX-DTYPE",
                f"{counted(count, 'weight', verb='is')} cast from {name} to f32, which the graph computes in",
            )
    return {**model.weights, **changed}


def _to_graph(graph: Graph, model: Model, name: str, blocks: bool, carried: bool) -> None:
    """The nodes of one of the model's graphs, with a cache that grows; the tokenizer's files and config.json go along,
    as exporters have them."""
    from ...models.layers.net import STORAGE_ONLY
    from ...runtime.ir.shape_inference import infer
    from ...runtime.passes.lower.standard_onnx import to_standard_onnx
    from ...runtime.passes.quantize.ggml_to_nbits import RepackGgmlAsNBits
    from ...runtime.tensor.block_codec import codec_of
    from ..load.bind import build_graph
    from .held_files import add_files, exported_files, lacking_files

    weights = _in_f32(graph, model, () if not blocks else STORAGE_ONLY)
    made = build_graph(dataclasses.replace(model, weights=weights), name, fixed=False)
    if blocks and RepackGgmlAsNBits(codec_of).run(made):
        kept = [tensor for tensor in made.weights.values() if tensor.qtype is not None]
        for name, count in Counter(tensor.dtype.name for tensor in kept).items():
            sizes = [(tensor.nbytes, 4 * tensor.count) for tensor in kept if tensor.dtype.name == name]
            before, after = (human_size(sum(column)) for column in zip(*sizes, strict=True))
            why = f"{counted(count, 'weight', verb='is')} dequantized from {name} to f32 ({before} to {after})"
            graph.note("W-DEQUANTIZED", f"{why}: ONNX has no operators for what they are used for")
    to_standard_onnx(made, StoredTensor.dequantize)
    infer(made)
    graph.weights, graph.values, graph.nodes = made.weights, made.values, made.nodes
    graph.inputs, graph.outputs, graph.name = made.inputs, made.outputs, made.name
    if not carried:
        graph.attachments = {}
    else:
        if CONFIG not in graph.attachments:
            graph.attachments = _files(graph, model, carried)
        add_files(graph, lacking_files(graph, model, exported=True))
        add_files(graph, exported_files(graph, model))
    graph.metadata, graph.constants = {}, made.constants
    graph.opsets |= made.opsets
