"""Models by the names of transformers' classes: modules whose parameters are the tensors of a checkpoint, and whose
forward is the graph of the family, differentiable."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...nn.core.module import Module
from ...nn.core.parameter import Parameter
from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import process_cache
from ...runtime.contract.naming import WatchedWeights
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ...tensors.core.tensor import Tensor
from ...tensors.graph_function import GraphFunction
from ...tensors.operations.creation import as_tensor, check_device
from ..open.open_model import open_model
from ..open.shard_set import whole_model
from .adapters import LowRank, adapter_rules, add_adapters, merged, save_adapters
from .class_names import AUTO, ClassName, class_name
from .losses import PAIRWISE, labeled_loss
from .new_weights import new_model
from .node_rules import block_rules, dropout_rules, dropouts_of, resize_rules
from .pretrained_weights import Pretrained, opened
from .save_pretrained import save
from .weight_moves import Move

M = TypeVar("M", bound="PretrainedModel")
LABELS = ("labels", "start_positions", "end_positions")
"""Inputs that make a loss."""
STATISTICS = (".running_mean", ".running_var")
"""Running statistics of batch norms, kept as in the checkpoint."""
MAX_LISTED = 4
MAX_COMPARED = 1 << 16
"""Elements of weights that are compared with what the graph has under their name."""


class ModelOutput(dict[str, Tensor]):
    """Outputs of a model by name, as items, as attributes, and in their order by number."""

    def __getattr__(self, name: str) -> Tensor:
        if name not in self:
            raise AttributeError(f"the model has no output {name!r}; it has {', '.join(self)}")
        return self[name]

    def __getitem__(self, key: Any) -> Any:
        return self.to_tuple()[key] if isinstance(key, int | slice) else super().__getitem__(key)

    def to_tuple(self) -> tuple[Tensor, ...]:
        """The outputs in their order."""
        return tuple(self.values())


class PretrainedModel(Module):
    """Base of the classes that `model_class` makes; calling one with a configuration makes a model with new weights.

        cc.models.BertModel({"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, ...})

    Args:
        config: a dictionary of the keys of config.json, its path, or transformers' object of them.

    Attributes:
        class_name: which class of transformers it stands for.
        config: config.json, with attributes as transformers' configurations have.
    """

    class_name: ClassVar[ClassName]

    def __init__(self, config: Any) -> None:
        super().__init__()
        is_open = isinstance(config, Pretrained)
        found = config if is_open else opened(new_model(config, self.class_name), self.class_name, {})
        self.opened = found
        self.config = Settings(found.stated)
        self.adapters: LowRank | None = None
        self._functions: dict[bool, GraphFunction] = {}
        watched = WatchedWeights(found.weights)
        graph = found.graph(watched)
        self.moves = {
            own: move for own, move in found.moves.items() if self._is_whole(graph, own) and not self._in_blocks(own)
        }
        trained = {name for move in self.moves.values() for name in move.names}
        self._register(found, trained)
        still = sorted(watched.used & found.moves.keys() - self.moves.keys() - set(self._blocks()))
        if still:
            more = f" and {len(still) - MAX_LISTED} more" if len(still) > MAX_LISTED else ""
            names = ", ".join(name for own in still[:MAX_LISTED] for name in found.moves[own].names)
            warnings.warn(f"weights that the graph computes others from are not trained: {names}{more}", stacklevel=3)
        self.train(not is_open)

    @classmethod
    def from_pretrained(
        cls: type[M],
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        num_labels: int | None = None,
        quantized: bool = False,
        new_head: bool = False,
        revision: str | None = None,
        offline: bool = False,
        device: Any = None,
        **changes: Any,
    ) -> M:
        """A model of any format, with f32 parameters, in evaluation mode.

        Args:
            pretrained_model_name_or_path: a directory, a file such as one of GGUF, or ``hf://owner/repo``.
            num_labels: labels of a classifier; a head that the checkpoint lacks is drawn.
            quantized: whether quantized weights stay in blocks and are not trained; they become f32 otherwise.
            new_head: whether the head of a classifier is initialized randomly.
            revision, offline: for ``hf://``.
            device: where the parameters are: the CPU.
            changes: keys of config.json that replace the file's: ``id2label``, ``hidden_dropout_prob`` ...

        Raises UsageError for a model of another family or without the task, or another device; FormatError for missing
        weights.
        """
        check_device(device)
        if num_labels is not None and "id2label" not in changes:
            changes["id2label"] = {number: f"LABEL_{number}" for number in range(num_labels)}
        graph = open_model(whole_model(pretrained_model_name_or_path), revision=revision, offline=offline)
        return cls.from_graph(graph, quantized=quantized, new_head=new_head, **changes)

    @classmethod
    def from_graph(cls: type[M], graph: Graph, *, quantized: bool = False, new_head: bool = False, **changes: Any) -> M:
        """As `from_pretrained`, for a model that is open."""
        if "id2label" in changes:
            changes["id2label"] = {str(number): name for number, name in changes["id2label"].items()}
            changes["label2id"] = {name: int(number) for number, name in changes["id2label"].items()}
        return cls(opened(graph, cls.class_name, changes, quantized=quantized, new_head=new_head))

    def _is_whole(self, graph: Graph, own: str) -> bool:
        """Whether the graph has a weight as the file stores it, and not something that was computed from it."""
        held, stored = graph.weights.get(own), self.opened.weights.get(own)
        if held is None or stored is None:
            return False
        small = held.shape == stored.shape and held.count <= MAX_COMPARED
        return held.storage is stored.storage or (small and np.array_equal(held.numpy(), stored.numpy()))

    def _in_blocks(self, own: str) -> bool:
        return self.opened.weights[own].qtype is not None

    def _blocks(self) -> Iterator[str]:
        return (own for own, tensor in self.opened.weights.items() if tensor.qtype is not None)

    def _register(self, found: Pretrained, trained: set[str]) -> None:
        for name, tensor in found.tensors.items():
            if tensor.qtype is not None:
                continue
            module: Module = self
            *path, last = name.split(".")
            for step in path:
                inner = module._modules.get(step)
                if inner is None:
                    inner = Module()
                    module.register_module(step, inner)
                module = inner
            array = np.array((tensor.cast("f32") if tensor.dtype.kind == "float" else tensor).numpy())
            if name in trained and not name.endswith(STATISTICS):
                module.register_parameter(last, Parameter(as_tensor(array)))
            else:
                module.register_buffer(last, as_tensor(array))

    def _function(self) -> GraphFunction:
        """The graph as a function, in this mode."""
        if self.training not in self._functions:
            graph = self.opened.graph(self.opened.weights)
            rules = {**block_rules(graph), **resize_rules(graph)}
            if self.training:
                dropouts = dropouts_of(self.opened.stated)
                if dropouts.any() and not dropout_rules(graph, dropouts, self.opened.config.task, rules):
                    title = self.opened.architecture.title
                    warnings.warn(
                        f"{title} models drop no hidden states: dropout of config.json has no effect", stacklevel=4
                    )
            if self.adapters is not None:
                adapter_rules(self, self.opened, self.adapters, graph, rules, training=self.training)
            self._functions[self.training] = GraphFunction(graph, rules)
        return self._functions[self.training]

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **inputs: Any) -> ModelOutput:
        """The outputs by transformers' names, and ``loss`` where there are labels.

        Args:
            input_ids: tokens, i64 [batch, length]; models of pictures take ``pixel_values`` f32 [batch, channels,
                height, width] instead.
            attention_mask: 1 for tokens, 0 for padding, [batch, length]; by default all are tokens.
            inputs: others by name, and ``labels``, or ``start_positions`` and ``end_positions``.

        Raises UsageError for inputs that the model does not take.
        """
        given = {"input_ids": input_ids, "attention_mask": attention_mask, **inputs}
        tensors = {name: as_tensor(value) for name, value in given.items() if value is not None}
        labels = {name: tensors.pop(name) for name in LABELS if name in tensors}
        function = self._function()
        graph = function.graph
        for value in graph.inputs:
            if value.name not in tensors:
                tensors[value.name] = self._default(value, tensors)
        unknown = tensors.keys() - {value.name for value in graph.inputs} - {"token_type_ids", "position_ids"}
        if unknown:
            known = ", ".join(value.name for value in graph.inputs if not value.name.startswith("past_"))
            why = f"{type(self).__name__} does not take {', '.join(sorted(unknown))}"
            raise UsageError("E-MODEL-INPUT", None, why, expected=known)
        names = [value.name for value in graph.outputs if not value.name.startswith("present")]
        found = function(tensors, self.weights(), names)
        outputs = {name: found[name] for name in names}
        if labels:
            pairwise = any(name.endswith("logit_bias") for name in self.opened.weights)
            problem = PAIRWISE if pairwise else self.opened.stated.get("problem_type")
            return ModelOutput({"loss": labeled_loss(self.opened.config.task, outputs, labels, problem), **outputs})
        return ModelOutput(outputs)

    def weights(self) -> dict[str, Tensor]:
        """The weights of the graph by its names, from the parameters."""
        return {own: self._shaped(own, move) for own, move in self.moves.items()}

    def _shaped(self, own: str, move: Move) -> Tensor:
        found = move.of([self._tensor(name) for name in move.names])
        shape = self._function().graph.weights[own].shape
        return found if found.shape == shape else found.reshape(*shape)

    def _tensor(self, name: str) -> Tensor:
        path, _, last = name.rpartition(".")
        tensor: Tensor = getattr(self.get_submodule(path), last)
        return tensor

    def _default(self, value: Value, given: Mapping[str, Tensor]) -> Tensor:
        """The default of an input in transformers."""
        name = value.name
        if name.startswith("past_"):
            batch = next((tensor.shape[0] for tensor in given.values()), 1)
            lengths = [
                batch if dim == "batch_size" else dim if isinstance(dim, int) else 0 for dim in value.shape or ()
            ]
            return as_tensor(np.zeros(lengths, np.float32))
        if "input_ids" not in given:
            raise UsageError("E-MODEL-INPUT", None, f"{type(self).__name__} needs {name}")
        shape = given["input_ids"].shape
        if name == "attention_mask":
            return as_tensor(np.ones(shape, np.int64))
        if name == "token_type_ids":
            return as_tensor(np.zeros(shape, np.int64))
        if name == "position_ids":
            return as_tensor(np.broadcast_to(np.arange(shape[1]), shape).copy())
        raise UsageError("E-MODEL-INPUT", None, f"{type(self).__name__} needs {name}")

    def add_adapters(
        self,
        rank: int,
        *,
        alpha: float | None = None,
        dropout: float = 0.0,
        targets: Sequence[str] | None = None,
        saved: Sequence[str] = (),
    ) -> None:
        """Freeze the parameters, and train low-rank adapters instead; see `adapters.add_adapters`."""
        self.adapters = add_adapters(
            self, self.opened, rank, alpha=alpha, dropout=dropout, targets=targets, saved=saved
        )
        self._functions.clear()

    def save_adapters(self, save_directory: str | os.PathLike[str], base: str) -> list[str]:
        """Write the adapters as PEFT reads them; returns the paths.

        Args:
            base: the model that they were trained for.
        """
        if self.adapters is None:
            raise UsageError("E-LORA-NONE", None, "the model has no adapters", hint="Call add_adapters(16)")
        return save_adapters(self, self.adapters, self.opened.config.task, save_directory, base)

    @property
    def stored_dtype(self) -> str:
        """The dtype of most weights in the checkpoint; f16 for a quantized one."""
        kinds = Counter[str]()
        for tensor in self.opened.source.weights.values():
            kinds["f16" if tensor.qtype is not None else tensor.dtype.name] += tensor.count
        return kinds.most_common(1)[0][0]

    def save_pretrained(self, save_directory: str | os.PathLike[str], *, dtype: str | None = None) -> list[str]:
        """Write a model directory: model.safetensors, config.json, and the files that came with the checkpoint;
        adapters are merged. Returns the paths.

        Args:
            dtype: of the weights, f32 by default.
        """
        return save(self.opened, self.arrays(), save_directory, dtype)

    def arrays(self) -> dict[str, StoredTensor]:
        """The tensors of the checkpoint by their names as they are now, with adapters merged."""
        blocks = {name: tensor for name, tensor in self.opened.tensors.items() if tensor.qtype is not None}
        own = {name: StoredTensor.of(np.asarray(each.numpy(), order="C")) for name, each in self.state_dict().items()}
        tensors = {name: own[name] if name in own else blocks[name] for name in self.opened.tensors}
        return tensors if self.adapters is None else merged(self, self.adapters, tensors)


class Settings:
    """config.json, whose keys are attributes."""

    def __init__(self, stated: Mapping[str, Any]) -> None:
        self._stated = dict(stated)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._stated:
            raise AttributeError(f"config.json has no {name!r}")
        return self._stated[name]

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return len(self._stated.get("id2label") or (0, 1))

    def to_dict(self) -> dict[str, Any]:
        """The keys and values."""
        return dict(self._stated)

    def __repr__(self) -> str:
        return f"Settings({self._stated})"


@process_cache
def model_class(name: str) -> type[PretrainedModel] | None:
    """The class that stands for a class of transformers; None for other names."""
    parted = class_name(name)
    if parted is None:
        return None
    family = "A model of any family" if parted.stem == AUTO else f"A {parted.stem} model"
    document = f"{family} for {parted.task}, as transformers' class of this name; see `from_pretrained`."
    return type(name, (PretrainedModel,), {"class_name": parted, "__doc__": document, "__module__": __name__})
