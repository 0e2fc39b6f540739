"""Transformer layers (Vaswani et al. 2017) with PyTorch's names of weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf
from ...tensors.core.tensor import Tensor
from .. import init
from ..core.module import Module
from ..functional import activation as functions
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .norm import LayerNorm

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
]  # fmt: skip
Activation = str | Callable[[Tensor], Tensor]


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise UsageError("E-NN-VALUE", None, f"{given!r} is not an activation", expected="relu, gelu or a function")
    found: Callable[[Tensor], Tensor] = getattr(functions, given)
    return found


class _Layer(Module):
    """Base of encoder and decoder layers: attention, a feed-forward network, norms and dropout."""

    def _prepare(
        self, d_model: int, dim_feedforward: int, dropout: float, activation: Activation, norms: int,
        settings: dict[str, Any], options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = settings["norm_first"]
        for index in range(1, norms + 1):
            self.add_module(f"norm{index}", LayerNorm(d_model, settings["eps"], **options))
        for index in range(1, norms + 1):
            self.add_module(f"dropout{index}", Dropout(dropout))
        self.activation = _activation(activation)

    def _fed(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual and a norm."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **options)
        settings = {"norm_first": norm_first, "eps": layer_norm_eps}
        self._prepare(d_model, dim_feedforward, dropout, activation, 2, settings, options)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """A tensor of the same shape: [length, N, d_model], or [N, length, d_model] with `batch_first`."""

        def attended(x: Tensor) -> Tensor:
            found = self.self_attn(
                x, x, x, src_key_padding_mask, need_weights=False, attn_mask=src_mask, is_causal=is_causal
            )
            return self.dropout1(found[0])

        def fed(x: Tensor) -> Tensor:
            return self.dropout2(self._fed(x))

        if self.norm_first:
            x = src + attended(self.norm1(src))
            return x + fed(self.norm2(x))
        x = self.norm1(src + attended(src))
        return self.norm2(x + fed(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result and a feed-forward network, each with a residual and a
    norm."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **options)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **options)
        settings = {"norm_first": norm_first, "eps": layer_norm_eps}
        self._prepare(d_model, dim_feedforward, dropout, activation, 3, settings, options)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """A tensor of the shape of `tgt`; `memory` is the encoder's result."""

        def itself(x: Tensor) -> Tensor:
            found = self.self_attn(x, x, x, tgt_key_padding_mask, need_weights=False, attn_mask=tgt_mask)
            return self.dropout1(found[0])

        def encoder(x: Tensor) -> Tensor:
            found = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, need_weights=False, attn_mask=memory_mask
            )
            return self.dropout2(found[0])

        def fed(x: Tensor) -> Tensor:
            return self.dropout3(self._fed(x))

        if self.norm_first:
            x = tgt + itself(self.norm1(tgt))
            x = x + encoder(self.norm2(x))
            return x + fed(self.norm3(x))
        x = self.norm1(tgt + itself(tgt))
        x = self.norm2(x + encoder(x))
        return self.norm3(x + fed(x))


class TransformerEncoder(Module):
    """Copies of an encoder layer one after the other, and a norm."""

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.register_module("norm", norm)

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """A tensor of the same shape."""
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, bool(is_causal))
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """Copies of a decoder layer one after the other, and a norm."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.register_module("norm", norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """A tensor of the shape of `tgt`."""
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = "relu",
        custom_encoder: Module | None = None, custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        rest = (bias, device, dtype)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, True, *rest)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*settings, *rest), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*settings, *rest), num_decoder_layers, norm()
        )
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """A tensor of the shape of `tgt`."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
            memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: Any = None, device: Any = None) -> Tensor:
        """[sz, sz] with -inf above the diagonal and 0 elsewhere."""
        mask = Tensor(leaf(np.triu(np.full((sz, sz), -np.inf, np.float32), 1)))
        return mask if dtype is None else mask.to(dtype)
