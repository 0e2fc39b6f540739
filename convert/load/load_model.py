"""Loading a model from a path or a graph, ready to run, into this process or across tensor-parallel ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...models.pipelines.task_model import PIPELINES, TaskModel, cannot
from ...runtime.base.errors import UsageError
from ...runtime.base.gc_pause import unsearched
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.contract.architecture import FEATURE_EXTRACTION, KEEP_BRANCHES, TEXT_RANKING, RunOptions
from ...runtime.contract.loaded_parts import LoadedParts
from ...runtime.ir.graph import Graph
from ..open.companion import companion_weights
from ..open.diffusion.single_file import split
from ..open.graph_files import decoder_of
from ..open.model_files import whole_of
from ..open.open_model import open_model
from ..open.shard_set import whole_model
from .attached_files import tokenizer_of
from .bind import bind_model, build_graph
from .canonical_names import canonical_names
from .memory_map import mapped
from .stated_task import for_ranking, stated_task

if TYPE_CHECKING:
    from ...models.generation.language_model import LanguageModel
    from ...models.seq2seq.encoder_decoder_model import EncoderDecoderModel


def load_language_model(path: str | os.PathLike[str] | Graph, *arguments: Any, **options: Any) -> LanguageModel:
    """A model that generates text; arguments as of `load`. UsageError for models of other kinds."""
    from ...models.generation.language_model import LanguageModel

    return _text_model(load(path, *arguments, **options), path, (LanguageModel,))


def load_text_model(
    path: str | os.PathLike[str] | Graph, *arguments: Any, **options: Any
) -> LanguageModel | EncoderDecoderModel:
    """As `load_language_model`, encoder-decoders included."""
    from ...models.generation.language_model import LanguageModel
    from ...models.seq2seq.encoder_decoder_model import EncoderDecoderModel

    return _text_model(load(path, *arguments, **options), path, (LanguageModel, EncoderDecoderModel))


def _text_model(found: Any, path: str | os.PathLike[str] | Graph, kinds: tuple[type, ...]) -> Any:
    """The model, if it is one of these classes."""
    if not isinstance(found, kinds):
        name = next(iter(path.files), None) if isinstance(path, Graph) else os.fspath(path)
        arch = getattr(getattr(found, "graph", None), "arch", None)
        kind = f"{arch} models" if arch else f"models for {getattr(found, 'task', '') or 'another task'}"
        hint = "Name the decoder's file" if name is not None and Path(name).name.startswith("encoder_model") else None
        raise UsageError("E-LM-TASK", name, f"{kind} do not generate text", expected="a language model", hint=hint)
    return found


@unsearched
@memory_limited
def load(
    path: str | os.PathLike[str] | Graph,
    threads: int | None = None,
    activations: str | None = None,
    task: str | None = None,
    device: str = "cpu",
    device_memory: int | None = None,
    gpu_layers: int | str | None = None,
    tensor_parallel: int = 1,
    keep_branches: bool = False,
) -> Any:
    """A model, ready to run, from a directory, a GGUF file, an ONNX file or a graph.

    The task decides what is returned: a `LanguageModel` for ``text-generation``, ``text-classification`` and
    ``feature-extraction`` with a decoder, and for ONNX files; what the architecture's `Task.run` makes for others, such
    as an `EncoderDecoderModel` for ``text2text-generation``.

    Args:
        threads: threads of one run, all cores where None.
        activations: ``f32``, or ``q8`` to round what meets quantized weights to 8 bits, as llama.cpp does; None for q8
            where text is generated, and f32 for logits.
        task: ``text-generation`` (or ``lm``) for logits of tokens, ``text-classification`` (``classification``) for
            those of labels, ``text-ranking`` for documents by the answer yes or no, ``feature-extraction``
            (``hidden``) for hidden states, as models of embeddings have them, or another task of the architecture;
            None for what the file says, else the architecture's first task.
        device, device_memory, gpu_layers: as of `Session`: ``cpu`` or ``cuda``, the most bytes there, and how many
            layers run there.
        tensor_parallel: how many processes compute the model together, each with a part of it and, on ``cuda``, a card
            of its own. A process that asks for several keeps what it runs under ``if __name__ == "__main__"``, as
            Python's `multiprocessing` wants.
        keep_branches: whether convolutions that run side by side in training (RepVGG, MobileOne, FastViT) stay apart.
    """
    if tensor_parallel != 1:
        from ...models.generation.language_model import Placement
        from .tensor_parallel import Opening, load_ranked

        if isinstance(path, Graph) or task is not None:
            raise UsageError("E-RANK-GRAPH", None, "several ranks open the model by its path, for logits of tokens")
        return load_ranked(
            Opening(os.fspath(path)),
            tensor_parallel,
            threads=threads,
            activations=activations,
            placement=Placement(device, device_memory, gpu_layers),
        )
    opened = split(path if isinstance(path, Graph) else open_model(whole_model(path), parts=True))
    graph = decoder_of(canonical_names(opened))
    options = RunOptions(
        threads,
        activations,
        device,
        device_memory,
        gpu_layers,
        tokenizer=functools.partial(tokenizer_of, graph),
        source=graph,
        companion=functools.partial(companion_weights, graph),
        pieces_together=_pieces_together,
    )
    whole = whole_of(graph) if graph.parts else None
    if whole is not None:
        own = whole.task()
        if task not in (None, own.name):
            why = f"the model does not support the task {task!r}"
            raise UsageError("E-ARCH-TASK", graph.files[0], why, expected=own.name)
        running = functools.partial(
            _load_part,
            threads=threads,
            activations=activations,
            device=device,
            device_memory=device_memory,
            gpu_layers=gpu_layers,
        )
        return own.run(LoadedParts(graph.parts, running), dataclasses.replace(options, task=own.name))
    if graph.nodes or graph.parts:
        from .network import run_network

        return run_network(graph, options, task)
    model = bind_model(graph, task)
    task = task or stated_task(graph, model)
    model = for_ranking(model) if task == TEXT_RANKING else model
    model = model if task is None else model.for_task(task)
    model = model.with_settings({KEEP_BRANCHES: True}) if keep_branches else model
    graphs = {name: mapped(each) for name, each in model.graphs().items()}

    def variant(name: str) -> Graph | None:
        return mapped(build_graph(model, name)) if name in model.task.variants else None

    options = dataclasses.replace(options, config=model.config, task=model.task.name, variant=variant)
    return model.task.run(graphs, options)


def _pieces_together(*arguments: Any, **options: Any) -> Any:
    from ...models.generation.batching.offline import pieces_together

    return pieces_together(*arguments, **options)


def _load_part(graph: Graph, *, task: str | None = None, **options: Any) -> Any:
    """A part of a model of several; the graphs that Optimum exports of one serve every task."""
    if graph.nodes or graph.parts:
        from .network import run_component

        found = run_component(graph, RunOptions(**options, source=graph))
        if found is not None:
            return found
    return load(graph, task=task, **options)


def load_for(verb: str, graph: Graph, *, task: str | None = None, **options: Any) -> Any:
    """A model that has the method `verb`, of the first task for that: the file's own, or another one whose weights it
    has. Options as of `load`; UsageError for models without such a task."""
    graph = decoder_of(canonical_names(split(graph)))
    task = _task_for(verb, graph) if task is None else task
    found = load(graph, task=task, **options)
    if isinstance(found, TaskModel) and verb not in found.verbs:
        raise cannot(found, verb)
    return found


def _task_for(verb: str, graph: Graph) -> str | None:
    if graph.nodes or graph.parts:
        from .network import attends_to_source

        return FEATURE_EXTRACTION if attends_to_source(graph) and verb not in ("generate", "transcribe") else None
    model = bind_model(graph)
    own = stated_task(graph, model) or model.task.name
    if own == TEXT_RANKING and verb == "rerank":
        return own
    for name in dict.fromkeys((own, *(task.name for task in model.architecture.tasks))):
        module = name.replace("-", "_")
        if module in PIPELINES and hasattr(PIPELINES.load(module), verb):
            with contextlib.suppress(UsageError):
                return model.for_task(name).task.name
    return None
