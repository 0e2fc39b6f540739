"""Low-rank adapters (LoRA; Hu et al. 2021, arXiv:2106.09685) on the linear layers of a model, in PEFT's files.

A layer's result gets ``alpha / rank * B A x`` added; its own weight, which may be quantized, is neither changed nor
copied.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...nn.core.module import Module
from ...nn.core.parameter import Parameter
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.contract.architecture import TEXT_CLASSIFICATION, TEXT_GENERATION
from ...runtime.ir.graph import Graph, Node
from ...runtime.tensor.stored_tensor import StoredTensor
from ...tensors.core.expression import Expression
from ...tensors.core.tensor import Tensor
from ...tensors.graph_function import Rule
from ...tensors.namespace import PUBLIC
from ...tensors.operations.random import GENERATOR
from ..console.atomic_replace import make_folder, replacing
from .class_names import OF_PARTS
from .node_rules import computed, dropped, linears
from .pretrained_weights import Pretrained
from .weight_moves import Move, taken

PREFIX = "base_model.model."
"""Prefix of names in PEFT's files."""
LAYERS = re.compile(r"(?:\w+\.)?(?:layers|blocks)\.")
"""How own names of weights in layers begin, those of a part after its name."""
TASKS = {TEXT_GENERATION: "CAUSAL_LM", TEXT_CLASSIFICATION: "SEQ_CLS"}
"""PEFT's names of tasks."""


@dataclass(frozen=True)
class LowRank:
    """The adapters of a model.

    Attributes:
        alpha: updates are multiplied by alpha / rank.
        dropout: probability with which elements of a layer's input are dropped for the adapter.
        targets: modules by transformers' names; transposed: those whose weights are stored [in, out].
        saved: modules that are trained themselves, such as a head.
    """

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]
    transposed: frozenset[str]
    saved: tuple[str, ...]

    @property
    def scale(self) -> float:
        """The factor of updates."""
        return self.alpha / self.rank


def add_adapters(
    model: Module,
    found: Pretrained,
    rank: int,
    *,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: Sequence[str] | None = None,
    saved: Sequence[str] = (),
) -> LowRank:
    """Freeze a model, and give the linear layers of its layers adapters, which start as updates of zero.

    Args:
        model: the module of `found`.
        alpha: 2 * rank by default.
        targets: last parts of the names of layers, such as ``q_proj``; None for all.
        saved: modules that are trained besides the adapters.

    Raises UsageError if no layer has such a name.
    """
    modules: dict[str, tuple[int, int, bool]] = {}
    for own, move in _moves(found, found.graph(found.weights)).items():
        if LAYERS.match(own):
            for name in move.names:
                module, shape = name.removesuffix(".weight"), found.tensors[name].shape
                inputs, outputs = shape if move.transposed else shape[::-1]
                modules[module] = inputs, outputs, move.transposed
    chosen = [each for each in modules if targets is None or each.rpartition(".")[2] in targets]
    if not chosen:
        known = ", ".join(sorted({each.rpartition(".")[2] for each in modules}))
        why = f"no layer is called {' or '.join(targets or ())}" if modules else "the model has no linear layers"
        raise UsageError("E-LORA-TARGETS", found.path, why, expected=known or None)
    model.requires_grad_(False)
    for module in saved:
        model.get_submodule(module).requires_grad_(True)
    for module in chosen:
        inputs, outputs, _ = modules[module]
        bound = 1 / math.sqrt(inputs)
        with GENERATOR.lock():
            drawn = GENERATOR.uniform(rank * inputs, np.dtype(np.float32)).reshape(rank, inputs)
        _register(model, f"{module}.lora_A", (drawn * 2 - 1) * np.float32(bound))
        _register(model, f"{module}.lora_B", np.zeros((outputs, rank), np.float32))
    transposed = frozenset(each for each in chosen if modules[each][2])
    scale = 2.0 * rank if alpha is None else float(alpha)
    return LowRank(rank, scale, dropout, tuple(chosen), transposed, tuple(saved))


def _moves(found: Pretrained, graph: Graph) -> dict[str, Move]:
    """The weights of linear layers by own names, and what they are of the tensors."""
    moves = found.moves
    names = [f"{each.name}.weight" for each in linears(graph)]
    return {own: moves[own] for own in names if own in moves and moves[own].factor == 1 and moves[own].offset == 0}


def _register(model: Module, path: str, array: np.ndarray) -> None:
    module = model
    for step in path.split("."):
        inner = module._modules.get(step)
        if inner is None:
            inner = Module()
            module.register_module(step, inner)
        module = inner
    module.register_parameter("weight", Parameter(PUBLIC["from_numpy"](array)))


def adapter_rules(
    model: Module, found: Pretrained, low_rank: LowRank, graph: Graph, rules: dict[Node, Rule], *, training: bool
) -> None:
    """Add the adapters to the rules of a graph."""
    dropout = low_rank.dropout if training else 0.0
    moves = _moves(found, graph)
    for each in linears(graph):
        move = moves.get(f"{each.name}.weight")
        if move is not None and any(name.removesuffix(".weight") in low_rank.targets for name in move.names):
            parts = [_update(model, found, low_rank, name, move) for name in move.names]
            rules[each.product] = _adapted(each.product, rules.get(each.product), parts, move, dropout)


def _update(model: Module, found: Pretrained, low_rank: LowRank, name: str, move: Move) -> Callable[[Tensor], Tensor]:
    """The adapter's contribution to a layer's output, from its input."""
    module = name.removesuffix(".weight")
    outputs = found.tensors[name].shape[1 if move.transposed else 0]

    def update(x: Tensor) -> Tensor:
        if module not in low_rank.targets:
            nothing: Tensor = PUBLIC["zeros"](*x.shape[:-1], outputs)
            return nothing
        down, up = factors(model, module)
        return (x @ down.transpose(0, 1)) @ up.transpose(0, 1) * low_rank.scale

    return update


def _adapted(
    node: Node, rule: Rule | None, updates: Sequence[Callable[[Tensor], Tensor]], move: Move, dropout: float
) -> Rule:
    def product(inputs: Sequence[Expression | None]) -> Sequence[Expression]:
        (plain,) = computed(node, rule, inputs)
        assert inputs[0] is not None
        x = Tensor(inputs[0])
        x = dropped(x, dropout) if dropout else x
        parts = [update(x) for update in updates]
        whole = parts[0] if len(parts) == 1 else PUBLIC["cat"](parts, -1)
        whole = whole if move.rows is None else taken(whole, move.rows, whole.ndim - 1)
        return [(Tensor(plain) + whole).expression]

    return product


def factors(model: Module, module: str) -> tuple[Tensor, Tensor]:
    """A [rank, in] and B [out, rank] of a module."""
    inner = model.get_submodule(module)
    return inner.lora_A.weight, inner.lora_B.weight


def merged(model: Module, low_rank: LowRank, tensors: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint with the updates added; quantized ones become f32."""
    found = dict(tensors)
    for module in low_rank.targets:
        down, up = (each.detach().numpy() for each in factors(model, module))
        update = (up @ down) * np.float32(low_rank.scale)
        held = tensors[f"{module}.weight"]
        plain = held if held.qtype is None else held.dequantize()
        array = plain.cast("f32").numpy() + (update.T if module in low_rank.transposed else update)
        found[f"{module}.weight"] = StoredTensor.of(np.ascontiguousarray(array))
    return found


def save_adapters(model: Module, low_rank: LowRank, task: str, folder: str | os.PathLike[str], base: str) -> list[str]:
    """Write adapter_config.json and adapter_model.safetensors, as PEFT reads them; returns their paths.

    Args:
        task: of the model.
        base: what the adapters were trained for.
    """
    from ..api.convert import save_file

    tensors: dict[str, Any] = {}
    whole = task in OF_PARTS
    for module in low_rank.targets:
        for part, tensor in zip("AB", factors(model, module), strict=True):
            tensors[f"{PREFIX}{module}.lora_{part}.weight"] = tensor.detach().numpy()
    for module in low_rank.saved:
        for name, tensor in model.get_submodule(module).state_dict().items():
            tensors[f"{PREFIX}{module}.{name}"] = tensor.numpy()
    config = {
        "peft_type": "LORA",
        "task_type": TASKS.get(task),
        "base_model_name_or_path": base,
        "r": low_rank.rank,
        "lora_alpha": int(low_rank.alpha) if low_rank.alpha.is_integer() else low_rank.alpha,
        "lora_dropout": low_rank.dropout,
        "target_modules": sorted({module if whole else module.rpartition(".")[2] for module in low_rank.targets}),
        "modules_to_save": list(low_rank.saved) or None,
        "fan_in_fan_out": bool(low_rank.transposed),
        "bias": "none",
        "inference_mode": True,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
    }
    make_folder(folder)
    weights, said = Path(folder) / "adapter_model.safetensors", Path(folder) / "adapter_config.json"
    save_file(tensors, weights, {"format": "pt"})
    with replacing(said, force=True) as file:
        file.write(json.dumps(config, indent=2).encode() + b"\n")
    return [str(said), str(weights)]
