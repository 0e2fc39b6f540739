"""Architectures: what a family of models is called, how each format names its hyper-parameters and weights, and the
tasks it is used for.

A family is one module anywhere below `models/` with a constant `ARCHITECTURES`. Rows say everything that formats
disagree about. A `Task` builds one or several graphs, using our own names only, so that one definition serves every
format and every stored type, and runs them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from ..base.dataclass import dataclass
from ..base.errors import FormatError
from ..ir.graph import Graph
from ..tensor.stored_tensor import StoredTensor
from .hyperparameter import SIZE, Kind, ParameterError, checked
from .mmproj import Mmproj

HF, GGUF, GRAPH = "hf", "gguf", "graph"
"""The naming conventions: Hugging Face (config.json and module paths), llama.cpp, and the architecture's own, which
exported graphs use."""
TIMM, TORCHVISION, CANDLE, ORIGINAL = "timm", "torchvision", "candle", "original"
"""Further conventions, the last one that of the authors' own code; their hyper-parameters are stated under the
architecture's own names."""
STATED = {
    HF: "config.json",
    GGUF: "the metadata of the GGUF file",
    GRAPH: "config.json",
    TIMM: "config.json",
    TORCHVISION: "config.json",
    CANDLE: "config.json",
    ORIGINAL: "config.json",
}
"""Naming convention -> the source of hyper-parameters in files of it."""
KEEP_BRANCHES, KEEP_NORMS = "keep_branches", "keep_norms"
"""Hyper-parameters of image networks: parallel convolutions of training, and batch norms, stay operators of their
own."""
UNFOLDED = {KEEP_BRANCHES: True, KEEP_NORMS: True}
"""The hyper-parameters of networks as their files store them."""
REQUIRED = object()
OWN_HEAD = "own_head"
"""Key next to the name of a head in a configuration: the name of its weight in files if it is not the embedding, else
None."""
MISSHAPEN = (ArithmeticError, AttributeError, IndexError, TypeError, ValueError)
"""Errors of functions that take sizes from weights of unexpected shapes."""


SHARDS, CONFIGURATION = "Are all shards there?", "Is the configuration this model's?"


def lacks_weights(path: str | None, why: str) -> FormatError:
    """The error for weights that are missing."""
    return FormatError("E-ARCH-MISSING", path, why, hint=SHARDS)


def lacks_head(path: str | None, name: str) -> FormatError:
    """The error for a model whose head is missing, and is not the embedding; `name`: what files call its weight."""
    why = f"missing {name}, the head: the configuration does not tie it to the embedding"
    hint = 'Are all shards there? Set "tie_word_embeddings": true in config.json only if the model was trained so'
    return FormatError("E-ARCH-MISSING", path, why, hint=hint)


def wrong_shape(path: str | None, why: str) -> FormatError:
    """The error for weights whose shapes contradict the configuration."""
    return FormatError("E-ARCH-SHAPE", path, why, hint=CONFIGURATION)


class Config:
    """Hyper-parameters by the names of an architecture's rows, as attributes."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.values:
            raise AttributeError(name)
        return self.values[name]

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.values.items() if name != "parts"}
        return f"Config({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Row(Protocol):
    """A row of hyper-parameters."""

    @property
    def name(self) -> str: ...
    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        """The value in `source`: a config.json, or GGUF keys without the architecture's prefix. KeyError for a missing
        value without a default."""
        ...

    def write(self, names: str, config: Config) -> dict[str, Any]:
        """The keys and values that store the parameter in a file of these names."""
        ...


@dataclass(frozen=True)
class Key:
    """One hyper-parameter.

    Attributes:
        name: the architecture's name of the parameter.
        hf, gguf: its keys; the first of several is written; empty if such files do not have it. A
            GGUF key is given without ``ARCH.``. A dot in an `hf` key goes into a nested object.
        default: a value, or a function of the parameters of the rows above; where it is left out every file needs the
            key.
        kind: type and range of the values; computed defaults are checked too.
        null: the meaning of a key with the value null, if it is not the default.
        at_most: parameters that bound this one. The bound is checked after the shapes of the weights: it serves sizes
            that do not occur in a shape.
    """

    name: str
    hf: str | tuple[str, ...] = ()
    gguf: str | tuple[str, ...] = ()
    default: Any = REQUIRED
    kind: Kind = SIZE
    null: Any = REQUIRED
    at_most: tuple[str, ...] = ()

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        for key in self.keys(names):
            value = value_at(source, key) if names == HF else source.get(key)
            if value is not None:
                return checked(key, value, self.kind)
        if self.null is not REQUIRED and any(key in source for key in self.keys(names)):
            return self.null
        if self.default is REQUIRED:
            raise KeyError(" or ".join(self.keys(names)) or self.name)
        found = self.default(config) if callable(self.default) else self.default
        return found if found is None else checked(self.name, found, self.kind)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        keys, value = self.keys(names), getattr(config, self.name)
        return {keys[0]: value} if keys and value is not None else {}

    def keys(self, names: str) -> tuple[str, ...]:
        """The keys in files of these names."""
        keys = self.hf if names == HF else self.gguf if names == GGUF else self.name
        return (keys,) if isinstance(keys, str) else keys


def sizes(shape: Sequence[str | int], config: Config, layer: int = 0) -> tuple[int, ...]:
    """A shape whose lengths are integers, or products of parameters and integers: ``"heads*head_dim"``,
    ``"2*inner"``. Of a parameter that is a list, the element of `layer`."""
    return tuple(
        length if isinstance(length, int) else math.prod(_factor(name, config, layer) for name in length.split("*"))
        for length in shape
    )


def _factor(name: str, config: Config, layer: int) -> int:
    value = name if name.isdigit() else getattr(config, name)
    return int(value[layer] if isinstance(value, list) else value)


def value_at(source: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of nested objects, None if it does not exist."""
    value: Any = source
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


class Layout(Protocol):
    """Layout of one weight in one or several tensors of a file.

    Attributes:
        computed: whether values are recomputed and may be rounded; other layouts only move them.
        scalars: whether the tensors of the file may have no dimensions.
    """

    @property
    def computed(self) -> bool: ...

    @property
    def scalars(self) -> bool: ...

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        """The weight, from the tensors of the file; lazy."""
        ...

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        """The `count` tensors of the file, from the weight; lazy. Inverse of `join`."""
        ...

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        """One tensor of the file that several weights share, from their pieces."""
        ...


class Moved:
    """Base of layouts that only move values."""

    @property
    def computed(self) -> bool:
        return False

    @property
    def scalars(self) -> bool:
        return False


class Whole(Moved):
    """Base of layouts whose tensors store one weight only."""

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        raise TypeError("two rows have the same tensor")


class Same(Whole):
    """One tensor, unchanged."""

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return parts[0]

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [whole]


SAME = Same()


@dataclass(frozen=True)
class Stored:
    """The tensors of a file that store a weight, and their layout.

    Attributes:
        names: ``{i}`` stands for the layer; a name with ``{e}`` is one for each expert.
        layout: conversion from and to the weight.
        experts: name of the parameter that holds the number of experts.
    """

    names: tuple[str, ...]
    layout: Layout = SAME
    experts: str = "experts"

    def expanded(self, config: Config, layer: int) -> Iterator[str]:
        """The names for a layer, lazily: the number of experts has not been compared with the weights yet."""
        for name in self.names:
            numbered = name.replace("{i}", str(layer))
            for expert in range(getattr(config, self.experts)) if "{e}" in name else (0,):
                yield numbered.replace("{e}", str(expert))


FileNames = str | Stored | tuple[str | Stored, ...]


@dataclass(frozen=True)
class Weight:
    """One weight, or one of each layer: ``{i}`` stands for the layer.

    Attributes:
        name: the architecture's name of the weight.
        hf, gguf: name in files of either kind; several where different files use different ones, the first being
            written; none where such files do not have it.
        shape: lengths as integers or products of parameters (``"heads*head_dim"``); None if it is not checked.
        optional: whether a file may lack it.
        when: whether layer `i` of a model has it.
        compute: makes the weight from the configuration, for files that do not store it.
        layers: name of the parameter that holds the number of layers.
        factor: for layer `i`, weight = factor * the tensor in Hugging Face's files.
        others: names in files of further conventions.
        repeats: the weight that it is in files that lack it; in files that repeat it, it is left out.
    """

    name: str
    hf: FileNames = ()
    gguf: FileNames = ()
    shape: tuple[str | int, ...] | None = None
    optional: bool = False
    when: Callable[[Config, int], bool] | None = None
    compute: Callable[[Config], StoredTensor | None] | None = None
    layers: str = "layers"
    factor: Callable[[Config, int], float] | None = None
    others: Mapping[str, FileNames] | None = None
    repeats: str | None = None

    def stored(self, names: str) -> tuple[Stored, ...]:
        """The alternatives in which files of these names store it."""
        ways = {HF: self.hf, GGUF: self.gguf, GRAPH: self.name, **(self.others or {})}[names]
        several = ways if isinstance(ways, tuple) else (ways,)
        return tuple(way if isinstance(way, Stored) else Stored((way,)) for way in several)


class ModuleNames(Protocol):
    """The names of a module, or of a weight, in the conventions of several libraries."""

    @property
    def name(self) -> str: ...
    def names(self, convention: str) -> tuple[str, ...]:
        """The templates in files of a convention."""
        ...

    def read(self, convention: str, name: str) -> tuple[Mapping[str, int], str] | None:
        """The indices in the name of a tensor, and the rest of it; None for tensors of other modules."""
        ...

    def stored(self, convention: str, indices: Mapping[str, int], rest: str) -> tuple[Stored, ...]:
        """Tensors in files of a convention that store the weight with these indices."""
        ...


class GraphBuilder(Protocol):
    """A function that builds one graph of a model."""

    def __call__(self, graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        """Add the inputs, nodes and outputs.

        Args:
            graph: an empty graph; the weights that its nodes use are added to it, in their stored dtype.
            weights: the weights of the model, by the architecture's names.
            fixed: whether KV caches have a fixed capacity (fastest) or grow (exported graphs).
        """
        ...


@dataclass(frozen=True)
class RunOptions:
    """Options of running the graphs of a model.

    Attributes:
        threads: threads of one run, all cores if None.
        activations, device, device_memory, gpu_layers: as of `Session`.
        config: hyper-parameters, None for graphs that were read from a file of nodes.
        tokenizer: reads the model's tokenizer when it is needed.
        task: name of the task that the graphs compute, as of `Task`; empty if unknown.
        source: what was opened: metadata and attached files.
        companion: reads the weights in an attached file, by the file's name.
        variant: builds a graph of `Task.variants` by its name, None if the task lacks it.
        pieces_together: generates text by the engine of continuous batching; see `pieces_together`.
    """

    threads: int | None = None
    activations: str | None = None
    device: str = "cpu"
    device_memory: int | None = None
    gpu_layers: int | str | None = None
    config: Config | None = None
    tokenizer: Callable[[], Any] | None = None
    task: str = ""
    source: Graph | None = None
    companion: Callable[[str], Mapping[str, StoredTensor]] | None = None
    variant: Callable[[str], Graph | None] | None = None
    pieces_together: Callable[..., Any] | None = None


MODEL = "model"
"""Name of the graph of a task that has only one."""
TEXT_GENERATION, TEXT_CLASSIFICATION, FEATURE_EXTRACTION, TEXT_RANKING = (
    "text-generation",
    "text-classification",
    "feature-extraction",
    "text-ranking",
)
"""Names of tasks, as Hugging Face's pipelines have them."""


@dataclass(frozen=True)
class Task:
    """A use of a model: the graphs that compute it, and the class that runs them.

    Attributes:
        name: Hugging Face's name of the pipeline, such as ``text-generation``.
        graphs: the builder of each graph, by name: `MODEL`, or names such as ``encoder`` and ``decoder``.
        run: makes the object that `candle_convert.models.load` returns from the graphs, by the same names; from the
            loaded parts, by name, if each has files of its own in a folder.
        weights: rows of weights that only this task needs.
        unneeded: name prefixes of weights that files of models for this task may lack.
        aliases: other names of the task.
        variants: builders of graphs with the same weights that `run` may use in place of `graphs`; not exported.
    """

    name: str
    graphs: Mapping[str, GraphBuilder]
    run: Callable[[Mapping[str, Any], RunOptions], Any]
    weights: tuple[Weight, ...] = ()
    unneeded: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    variants: Mapping[str, GraphBuilder] = field(default_factory=dict)


COMPONENT = "component"
"""Prefix of the names of a `Component`'s graphs."""


@dataclass(frozen=True)
class Component:
    """A model as a component of a pipeline of diffusers: the graphs that Optimum exports of it.

    Attributes:
        graphs: the builder of each graph, by name: `COMPONENT` and what Optimum appends to the component's name for the
            folder of the graph, such as ``component_encoder`` for the folder ``vae_encoder``.
        run: as of `Task`, from the graphs by the same names.
    """

    graphs: Mapping[str, GraphBuilder]
    run: Callable[[Mapping[str, Any], RunOptions], Any]


@dataclass(frozen=True)
class Below:
    """Prefix of a part's weights in files of transformers.

    Attributes:
        prefix: how the names begin in the file of the whole ...
        inner: ... where they begin with this in the part's own file. Other weights of the part have other names.
        convention: whose names the part's own file has.
        read_only: whether files are only read with these names; they are written with those of transformers.
    """

    prefix: str
    inner: str = ""
    convention: str = HF
    read_only: bool = False


@dataclass(frozen=True)
class Part:
    """A model inside another one, which is bound by its own architecture.

    Own names of its weights and hyper-parameters are its architecture's, below the name of the part:
    ``text_encoder.hidden``; a part named "" has them unchanged. Files of transformers have its weights as `weights`
    says, and its hyper-parameters in an object of config.json. Other files have the own names of the weights, and the
    keys of config.json below the name of the object: ``text_encoder.d_model``. In a folder where each part has a file
    or a folder of its own, these are called after the parts.

    Attributes:
        architecture: an architecture, or the name of a registered one; None for the one that the object's `model_type`
            names.
        place: the object in config.json; empty for config.json itself.
        weights: names in files of transformers, the one that is written first; `place` and a dot if left out.
        graphs: how names of its graphs begin among the graphs of the whole, if these are a graph each.
        optional: whether a file may lack it.
        flat: the `model_type` of the part in files that have its hyper-parameters at the top of config.json, without
            `place`; None if no file has.
        stored: whether a quantized model has it as it is stored.
    """

    architecture: Architecture | str | None
    place: str
    weights: tuple[Below, ...] = ()
    graphs: str | None = None
    optional: bool = False
    flat: str | None = None
    stored: bool = False

    @property
    def names(self) -> tuple[Below, ...]:
        """Names of its weights in files of transformers."""
        return self.weights or (Below(f"{self.place}."),)

    def inside(self, place: str, prefix: str) -> Part:
        """The part where the whole is itself inside another model, whose config.json has the whole in the object
        `place` (at the top if empty), and whose names of weights begin with `prefix`. Names without ``model.`` are
        written: it is the whole's base class that stands inside others."""
        names = sorted(self.names, key=lambda below: below.prefix.startswith("model."))
        weights = tuple(replace(below, prefix=prefix + below.prefix) for below in names)
        return replace(self, place=f"{place}.{self.place}" if place else self.place, weights=weights)


Deviation = Callable[[Config, Collection[str]], str | None]
"""From a configuration and the tensors of its GGUF file to what llama.cpp computes differently, as the end of a
sentence; None if nothing."""


@dataclass(frozen=True)
class Architecture:
    """A family of models, or the part of one that shares all rows.

    Attributes:
        name: identifier, also on the command line.
        title: name for tables and messages.
        model_types: values of config.json's `model_type`.
        gguf: values of ``general.architecture``; the first one is written.
        keys, weights: rows, in the order in which they are read and written.
        tasks: uses of the models; the first one is the default.
        accepts: whether a config.json is of this architecture, for a `model_type` that several architectures share.
        implied: detects the architecture of files that do not name it: takes config.json and the graph, returns the
            naming convention and the configuration in the keys of such files, None for other architectures.
        settle: completes the configuration from the bound weights, or changes the weights.
        prefixes: optional prefixes of Hugging Face's weight names.
        ignored: patterns of tensors that are not weights, such as masks; ``{layers}`` stands for the number of layers,
            which is the index of a multi-token-prediction layer after the last one.
        tied: whether the head has the tensor of the embedding where config.json leaves ``tie_word_embeddings`` out.
        wide_activations: whether activations of trained models exceed the range of f16; a graph then computes in f32
            if f16 is requested.
        modules: modules by their names in each convention, in place of `weights`: the weights are then those of the
            file, and the graphs use all of them. A function makes them of a convention and the names in a file, where
            the number of layers decides what modules are called.
        deviations: what llama.cpp does differently with some of the models.
        gguf_required: weights without which llama.cpp loads no model of the architecture, by the name of their row:
            GGUF files of models that lack them have zeros there, or a copy of the weight named.
        defaults: by `model_type`, transformers' values of keys that config.json leaves out, where rows have other ones.
        nested_defaults: further ones of a config.json that is an object inside another one.
        folder_files: contents of JSON files, by name, that a folder has next to the parts, for what no file of weights
            holds; made of the folder that was opened.
        exported_files: contents of JSON files, by name, that exported graphs have next to them, in place of those of
            the source: takes the source and the hyper-parameters.
        parts: models that it is made of, by name. `keys`, `weights` and `tasks` are those of the whole alone where a
            family declares it; a registered architecture has those of its parts too, as far as no file decides them.
        mmproj: how llama.cpp stores models of several parts in two files, for each of its projectors.
        component: what Optimum exports of a model that is a component of a pipeline; None if it is none.
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    gguf: tuple[str, ...]
    keys: tuple[Row, ...]
    weights: tuple[Weight, ...]
    tasks: tuple[Task, ...]
    accepts: Callable[[Mapping[str, Any]], bool] | None = None
    implied: Callable[[Mapping[str, Any], Graph], tuple[str, Mapping[str, Any]] | None] | None = None
    settle: Callable[[Config, dict[str, StoredTensor]], None] | None = None
    prefixes: tuple[str, ...] = ("model.", "transformer.")
    ignored: tuple[str, ...] = (r"rotary_emb\.inv_freq$", r"attn\.(masked_)?bias$", r"position_ids$")
    tied: bool = False
    wide_activations: bool = False
    modules: tuple[ModuleNames, ...] | Callable[[str, Collection[str]], tuple[ModuleNames, ...]] = ()
    deviations: tuple[Deviation, ...] = ()
    gguf_required: Mapping[str, str | None] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    nested_defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    folder_files: Callable[[Graph], dict[str, Any]] | None = None
    exported_files: Callable[[Graph, Config], dict[str, Any]] | None = None
    parts: Mapping[str, Part] = field(default_factory=dict)
    mmproj: tuple[Mmproj, ...] = ()
    component: Component | None = None

    def invalid(self, names: str, path: str | None, key: str, why: str) -> FormatError:
        """The error for an invalid hyper-parameter of a file."""
        whole = f"invalid parameter {key} of a {self.name} model: {why}"
        return FormatError("E-ARCH-KEY", path, whole, hint=f"Correct it in {STATED[names]}")

    def misshapen(self, path: str | None) -> FormatError:
        """The error for weights from whose shapes no sizes follow."""
        return wrong_shape(path, f"the shapes of the weights are not those of a {self.name} model")

    def task(self, name: str | None = None) -> Task:
        """The task of a name or alias, the first one for None. KeyError where the architecture does not have it."""
        for task in self.tasks:
            if name is None or name == task.name or name in task.aliases:
                return task
        raise KeyError(name)

    def completed(self, source: Mapping[str, Any], nested: bool = False) -> Mapping[str, Any]:
        """A config.json with transformers' defaults of keys that it leaves out; `nested`: as an object in another."""
        kind = source.get("model_type") or (self.model_types[0] if nested and self.model_types else None)
        left_out = self.defaults.get(str(kind), {})
        if nested:
            left_out = {**left_out, **self.nested_defaults.get(str(kind), {})}
        return {**left_out, **source} if left_out else source

    def config(self, names: str, source: Mapping[str, Any], path: str | None = None) -> Config:
        """The hyper-parameters of a file; FormatError for an invalid one, or listing all that are missing."""
        config = Config({"names": names, "path": path, **({"parts": self.parts} if self.parts else {})})
        missing = []
        for row in self.keys:
            try:
                config.values[row.name] = row.read(names, source, config)
            except KeyError as error:
                missing.append(str(error.args[0]))
            except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
                if missing:
                    break
                key = error.key if isinstance(error, ParameterError) else row.name
                raise self.invalid(names, path, key, str(error)) from error
        if missing:
            why = f"a {self.name} model needs {', '.join(missing)}"
            raise FormatError("E-ARCH-KEYS", path, why, hint="Is its configuration whole?")
        return config


def weight_slots(architecture: Architecture, config: Config) -> Iterator[tuple[Weight, int, str]]:
    """Each weight that a model can have: (row, layer, name), in the order of the rows, layer by layer."""
    task = architecture.task(config.values.get("task"))
    every = [
        replace(row, optional=True) if row.name.startswith(task.unneeded) else row
        for row in (*architecture.weights, *task.weights)
    ]
    for layered, rows in itertools.groupby(every, lambda row: row.layers if "{i}" in row.name else None):
        group = list(rows)
        for i in range(getattr(config, layered)) if layered else (0,):
            yield from (
                (row, i, row.name.replace("{i}", str(i))) for row in group if row.when is None or row.when(config, i)
            )


def parameters(rows: Sequence[Row], names: str, config: Config) -> dict[str, Any]:
    """The keys and values that store a configuration in a file of these names."""
    said: dict[str, Any] = {}
    for row in rows:
        for key, value in row.write(names, config).items():
            *around, last = key.split(".") if names == HF else (key,)
            place = said
            for step in around:
                place = place.setdefault(step, {})
            place[last] = value
    return said
