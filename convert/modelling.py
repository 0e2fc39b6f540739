"""Modelling: from the weights of a file to the architecture that they are of, and to a graph that runs."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models.language.model import LanguageModel
from ..models.layers.decoder import Decoder
from ..runtime.arch import GGUF, HF, Architecture, Config
from ..runtime.binding import architectures, bind, configured, recognise
from ..runtime.errors import UnsupportedError, UsageError
from ..runtime.garbage import unsearched
from ..runtime.graph import Graph
from ..runtime.record import dataclass
from ..runtime.shortage import memory_limited
from ..runtime.tensor import Tensor
from .legacy import modern
from .mapping import mapped
from .opening import attachments, open_model
from .prequantized import configuration

if TYPE_CHECKING:
    from ..models.language.tokenizer import Tokenizer

ARCHITECTURE = "general.architecture"
NODES = "onnx"
"""The format of files whose weights belong to nodes."""
TASKS = ("lm", "classification", "hidden")


@dataclass(frozen=True)
class Model:
    """Weights that are known to be a model's.

    Attributes:
        names: whose names and layouts the file has, `HF` or `GGUF`.
        config: hyper-parameters.
        weights: under the architecture's own names.
        source: what was read.
    """

    architecture: Architecture
    names: str
    config: Config
    weights: dict[str, Tensor]
    source: Graph


def described(graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Whose names a file has, and what it says of its architecture: GGUF metadata, the config.json beside it, or what weights and metadata imply.

    None where nothing says it, and for the weights of a graph of nodes, whose names are its own.
    """
    if graph.format == NODES:
        return None
    said = stated(graph)
    if said is None or (said[0] == HF and said[1].get("model_type") is None):
        for architecture in architectures():
            implied = architecture.implied(said[1] if said else {}, graph) if architecture.implied else None
            if implied is not None:
                return implied
    return said


def stated(graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """Whose names a file has, and what it says itself: GGUF metadata, or the config.json beside it."""
    if ARCHITECTURE in graph.metadata:
        return GGUF, graph.metadata
    said = configuration(graph)
    return None if said is None else (HF, said)


def modelled(graph: Graph) -> Model:
    """The architecture, configuration and weights of what was read.

    Raises UnsupportedError for an unknown architecture, FormatError for parameters or weights that are missing, extra or misshapen.
    """
    graph = modern(graph)
    architecture, names, config = identified(graph)
    path = graph.files[0] if graph.files else None
    return Model(architecture, names, config, bind(architecture, config, graph.weights, names, path), graph)


def identified(graph: Graph) -> tuple[Architecture, str, Config]:
    """The architecture, whose names the file has, and the configuration; raises as `modelled` does, but looks at no weight."""
    path = graph.files[0] if graph.files else None
    found = described(graph)
    if found is None:
        hint = "Open the model's directory with its config.json, or a GGUF file"
        raise UnsupportedError("E-ARCH-NONE", path, "nothing says which architecture the weights are of", hint=hint)
    names, source = found
    architecture = recognise(names, source, path)
    return architecture, names, configured(architecture, names, source, path)


def built(model: Model, *, fixed: bool = True) -> Graph:
    """The graph that computes the model, with a cache of fixed room or one that grows."""
    graph = Graph(name=model.architecture.name, arch=model.architecture.name, attachments=model.source.attachments)
    model.architecture.build(Decoder(graph, model.config, model.weights, fixed=fixed))
    return graph


@unsearched
@memory_limited
def load(
    path: str | os.PathLike[str] | Graph, threads: int | None = None, activations: str | None = None, task: str | None = None,
    device: str = "cpu", device_memory: int | None = None, gpu_layers: int | str | None = None, tensor_parallel: int = 1,
) -> LanguageModel:
    """A language model, ready to run, from a directory, a GGUF file, an ONNX file or a graph.

    Args:
        threads: threads of one run, all cores where None.
        activations: ``f32``, or ``q8`` to round what meets quantized weights to 8 bits, as llama.cpp does; None for q8 where text is
            generated, and f32 for logits.
        task: ``lm`` for logits of tokens, ``classification`` for those of labels, ``hidden`` for hidden states, as models of embeddings have them;
            what the file says where None.
        device, device_memory, gpu_layers: as of `Session`: ``cpu`` or ``cuda``, the most bytes there, and how many layers run there.
        tensor_parallel: how many processes compute the model together, each with a part of it and, on ``cuda``, a card of its own. A process
            that asks for several keeps what it runs under ``if __name__ == "__main__"``, as Python's `multiprocessing` wants.
    """
    placed: dict[str, Any] = {"device": device, "device_memory": device_memory, "gpu_layers": gpu_layers}
    if tensor_parallel != 1:
        from .ranked import Opening, load_ranked

        if isinstance(path, Graph) or task is not None:
            raise UsageError("E-RANK-GRAPH", None, "several ranks open the model by its path, for logits of tokens")
        return load_ranked(Opening(os.fspath(path)), tensor_parallel, threads=threads, activations=activations, **placed)
    graph = modern(path if isinstance(path, Graph) else open_model(path))
    if graph.nodes:
        return LanguageModel(mapped(graph), threads, activations, functools.partial(tokenizer_of, graph), **placed)
    model = modelled(graph)
    if task is not None:
        if task not in TASKS or (task == "classification" and "classifier.weight" not in model.weights):
            why = f"the model does not support the task {task!r}"
            raise UsageError("E-ARCH-TASK", graph.files[0] if graph.files else None, why, expected=" or ".join(TASKS))
        model.config.values["task"] = task
    context = model.config.values.get("context")
    return LanguageModel(mapped(built(model)), threads, activations, functools.partial(tokenizer_of, graph), context, **placed)


@unsearched
def tokenizer_of(graph: Graph) -> Tokenizer:
    """The tokenizer that came with what was read, or stands beside an ONNX file."""
    from ..models.language.tokenizer import read

    return read(with_files(graph))


def with_files(graph: Graph) -> Graph:
    """The same graph; one of nodes with the tokenizer and configuration that stand beside its file."""
    if graph.format == NODES and not graph.attachments and graph.files:
        graph.attachments = attachments(Path(graph.files[0]).parent, graph)
    return graph
