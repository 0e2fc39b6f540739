"""Low-rank adapters of layers (Hu et al. 2021, arXiv:2106.09685), with the names of weights that PEFT gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...runtime.base.errors import UnsupportedError, UsageError
from ...tensors.core.conversion import array_of
from ...tensors.core.expression import leaf
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import zeros
from ...tensors.operations.linalg import einsum
from .. import init
from ..core.module import Module
from ..core.parameter import Parameter
from ..functional.conv import convolve
from ..functional.linear import linear
from ..functional.sparse import embedding
from ..layers.conv import Conv1d, Conv2d, Conv3d
from ..layers.dropout import Dropout
from ..layers.linear import Linear
from ..layers.sparse import Embedding

__all__ = [
    "load_lora_state_dict", "lora", "lora_config", "lora_layers", "lora_parameters", "lora_state_dict", "merge_lora",
]  # fmt: skip
PREFIX = "base_model.model."
"""In front of the names of PEFT's files."""
CONVOLUTIONS = (Conv1d, Conv2d, Conv3d)
ALL_LINEAR = "all-linear"


class Factor(Module):
    """One factor of an adapter.

    Attributes:
        weight: of the shape that the layer of PEFT has.
    """

    def __init__(self, *shape: int, dtype: Any) -> None:
        super().__init__()
        self.weight = Parameter(zeros(shape, dtype=dtype))

    def extra_repr(self) -> str:
        """The shape."""
        return str(list(self.weight.shape))


class LoRALayer(Module):
    """A frozen layer plus `scaling` times a product of two factors of low rank.

    Attributes:
        base_layer: the layer.
        rank, alpha, scaling: scaling is alpha / rank, or alpha / sqrt(rank) of rank-stabilized adapters.
    """

    def __init__(self, base_layer: Module, rank: int, alpha: float, dropout: float, stabilized: bool) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.rank = rank
        self.alpha = alpha
        self.scaling = alpha / (math.sqrt(rank) if stabilized else rank)
        self.lora_dropout = Dropout(dropout)
        self.training = base_layer.training

    def factors(self) -> dict[str, Parameter]:
        """The trained parameters by PEFT's names."""
        raise NotImplementedError

    def delta(self) -> Tensor:
        """The product of the factors, which is added to the layer's weight."""
        raise NotImplementedError

    def merged(self) -> Module:
        """The layer with the adapter in its weight."""
        weight = self.base_layer.weight
        with no_grad():
            weight.data = (weight.data.float() + self.delta().float()).to(weight.dtype)
        return self.base_layer

    def extra_repr(self) -> str:
        """Rank and scaling."""
        return f"rank={self.rank}, scaling={self.scaling}"


class _TwoFactors(LoRALayer):
    def factors(self) -> dict[str, Parameter]:
        """Both weights."""
        return {"lora_A.weight": self.lora_A.weight, "lora_B.weight": self.lora_B.weight}


class LoRALinear(_TwoFactors):
    """A linear layer with an adapter: lora_A [rank, in_features], lora_B [out_features, rank]."""

    def __init__(self, base_layer: Linear, rank: int, alpha: float, dropout: float, stabilized: bool) -> None:
        super().__init__(base_layer, rank, alpha, dropout, stabilized)
        dtype = base_layer.weight.dtype
        self.lora_A = Factor(rank, base_layer.in_features, dtype=dtype)
        self.lora_B = Factor(base_layer.out_features, rank, dtype=dtype)
        init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))

    def forward(self, input: Tensor) -> Tensor:
        """[..., out_features]."""
        narrow = linear(self.lora_dropout(input), self.lora_A.weight)
        return self.base_layer(input) + linear(narrow, self.lora_B.weight) * self.scaling

    def delta(self) -> Tensor:
        """[out_features, in_features]."""
        return self.lora_B.weight @ self.lora_A.weight * self.scaling


class LoRAConv(_TwoFactors):
    """A convolution with an adapter: lora_A [rank, in_channels, ...kernel], lora_B [out_channels, rank, 1, ...]."""

    def __init__(self, base_layer: Any, rank: int, alpha: float, dropout: float, stabilized: bool) -> None:
        super().__init__(base_layer, rank, alpha, dropout, stabilized)
        if base_layer.groups != 1 or base_layer.padding_mode != "zeros":
            why = f"an adapter of {base_layer!r} is not supported"
            raise UnsupportedError("E-NN-LORA", None, why, hint="Leave convolutions with groups out of targets")
        weight = base_layer.weight
        self.lora_A = Factor(rank, *weight.shape[1:], dtype=weight.dtype)
        self.lora_B = Factor(weight.shape[0], rank, *[1] * base_layer.dims, dtype=weight.dtype)
        init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))

    def forward(self, input: Tensor) -> Tensor:
        """[N, out_channels, ...]."""
        base: Any = self.base_layer
        narrow = convolve(
            self.lora_dropout(input), self.lora_A.weight, None, base.stride, base.padding, base.dilation, 1
        )
        return base(input) + convolve(narrow, self.lora_B.weight, None, 1, 0, 1, 1) * self.scaling

    def delta(self) -> Tensor:
        """[out_channels, in_channels, ...kernel]."""
        return einsum("or,r...->o...", self.lora_B.weight.flatten(1), self.lora_A.weight) * self.scaling


class LoRAEmbedding(LoRALayer):
    """An embedding with an adapter: lora_embedding_A [rank, rows], lora_embedding_B [width, rank]."""

    def __init__(self, base_layer: Embedding, rank: int, alpha: float, dropout: float, stabilized: bool) -> None:
        super().__init__(base_layer, rank, alpha, dropout, stabilized)
        dtype = base_layer.weight.dtype
        self.lora_embedding_A = Parameter(zeros(rank, base_layer.num_embeddings, dtype=dtype))
        self.lora_embedding_B = Parameter(zeros(base_layer.embedding_dim, rank, dtype=dtype))
        init.normal_(self.lora_embedding_B)

    def factors(self) -> dict[str, Parameter]:
        """Both factors."""
        return {"lora_embedding_A": self.lora_embedding_A, "lora_embedding_B": self.lora_embedding_B}

    def forward(self, input: Tensor) -> Tensor:
        """[..., embedding_dim]."""
        base: Any = self.base_layer
        narrow = embedding(input, self.lora_embedding_A.T, base.padding_idx)
        return base(input) + narrow @ self.lora_embedding_B.T * self.scaling

    def delta(self) -> Tensor:
        """[rows, embedding_dim]."""
        return (self.lora_embedding_B @ self.lora_embedding_A).T * self.scaling


KINDS: tuple[tuple[Any, type[Any]], ...] = ((Linear, LoRALinear), (CONVOLUTIONS, LoRAConv), (Embedding, LoRAEmbedding))


def lora(
    module: Module, rank: int = 16, alpha: float | None = None, targets: str | Sequence[str] | None = None,
    dropout: float = 0.0, *, rank_stabilized: bool = False,
) -> Module:  # fmt: skip
    """Freeze a module and give layers in it adapters, in place.

    Args:
        rank: of the adapters.
        alpha: the adapters are scaled by alpha / rank; `rank` by default.
        targets: names of layers, whole or their last words ("q_proj", "decoder.fc1"); or one regular expression of
            whole names, as in PEFT; every Linear layer by default, or with "all-linear".
        dropout: of the adapters' inputs.
        rank_stabilized: scale by alpha / sqrt(rank) (Kalajdzievski 2023).

    Returns: the module; a layer itself becomes its adapter.

    Raises UsageError if no layer is meant, UnsupportedError if one cannot have an adapter.
    """
    if rank < 1:
        raise UsageError("E-NN-VALUE", None, f"a rank of {rank}", expected="1 or more")
    found = [(name, layer) for name, layer in module.named_modules() if _is_meant(name, layer, targets)]
    if not found:
        kinds = [name for name, layer in module.named_modules() if _adapter_of(layer) is not None]
        names = ", ".join(kinds[:8])
        raise UsageError("E-NN-LORA", None, f"no layer is meant by targets {targets!r}", expected=names or None)
    module.requires_grad_(False)
    for name, layer in found:
        kind = _adapter_of(layer)
        if kind is None:
            why = f"{name or 'the module'} is {type(layer).__name__}, which has no adapter"
            raise UnsupportedError("E-NN-LORA", None, why, hint="Target Linear, Conv and Embedding layers")
        adapter = kind(layer, rank, float(rank if alpha is None else alpha), dropout, rank_stabilized)
        if not name:
            return adapter
        module.set_submodule(name, adapter)
    return module


def _adapter_of(layer: Module) -> type[Any] | None:
    return next((adapter for kind, adapter in KINDS if isinstance(layer, kind)), None)


def _is_meant(name: str, layer: Module, targets: str | Sequence[str] | None) -> bool:
    if targets is None or targets == ALL_LINEAR:
        return isinstance(layer, Linear)
    if isinstance(targets, str):
        return re.fullmatch(targets, name) is not None
    return any(name == target or name.endswith(f".{target}") for target in targets)


def lora_layers(module: Module) -> Iterator[tuple[str, LoRALayer]]:
    """The adapters in a module by the names of their layers."""
    return ((name, layer) for name, layer in module.named_modules() if isinstance(layer, LoRALayer))


def lora_parameters(module: Module) -> list[Parameter]:
    """The trained parameters of the adapters."""
    return [parameter for _, layer in lora_layers(module) for parameter in layer.factors().values()]


def _named(module: Module) -> dict[str, Parameter]:
    return {
        f"{PREFIX}{name}.{key}" if name else f"{PREFIX}{key}": parameter
        for name, layer in lora_layers(module)
        for key, parameter in layer.factors().items()
    }


def lora_state_dict(module: Module) -> dict[str, Tensor]:
    """The adapters by the names of PEFT's adapter_model.safetensors."""
    return {name: parameter.detach() for name, parameter in _named(module).items()}


def load_lora_state_dict(module: Module, state_dict: Mapping[str, Any]) -> None:
    """Take the values of all adapters by the names of PEFT's files.

    Raises UsageError for names and shapes that do not fit; nothing is loaded then.
    """
    own = _named(module)
    different = sorted(own.keys() ^ state_dict.keys())
    if different:
        side = "lacks" if different[0] in own else "has also"
        why = f"the state dict of adapters {side} {different[0]}"
        raise UsageError("E-NN-STATE", None, why, hint="Give lora() the rank and targets that the file has")
    arrays = {name: array_of(state_dict[name]) for name in own}
    for name, array in arrays.items():
        if array.shape != own[name].shape:
            why = f"{name} has another shape in the state dict"
            raise UsageError("E-NN-STATE", None, why, expected=list(own[name].shape), found=list(array.shape))
    with no_grad():
        for name, array in arrays.items():
            own[name].become(Tensor(leaf(array.copy())))


def lora_config(module: Module) -> dict[str, Any]:
    """The content of PEFT's adapter_config.json for the adapters."""
    layers = dict(lora_layers(module))
    if not layers:
        raise UsageError("E-NN-LORA", None, f"{type(module).__name__} has no adapters", hint="Call lora() first")
    first = next(iter(layers.values()))
    return {
        "peft_type": "LORA",
        "r": first.rank,
        "lora_alpha": first.alpha,
        "lora_dropout": first.lora_dropout.p,
        "use_rslora": first.scaling != first.alpha / first.rank,
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": sorted(layers),
    }


def merge_lora(module: Module) -> Module:
    """Merge the adapters into the weights of their layers, in place.

    Returns: the module; an adapter itself becomes its layer.
    """
    for name, layer in list(lora_layers(module)):
        merged = layer.merged()
        if not name:
            return merged
        module.set_submodule(name, merged)
    return module
