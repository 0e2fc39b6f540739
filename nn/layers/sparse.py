"""Embeddings: rows of a trained table by their numbers."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import arange, zeros
from ...tensors.operations.indexing import where
from .. import init
from ..core.module import Module
from ..core.parameter import Parameter
from ..functional.sparse import embedding, embedding_bag

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    padding_idx: int | None

    def _prepare(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, weight: Tensor | None, device: Any,
        dtype: Any,
    ) -> None:  # fmt: skip
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise UsageError("E-NN-VALUE", None, f"padding_idx {padding_idx} of {num_embeddings} rows")
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if weight is not None:
            self.weight = Parameter(weight)
            return
        self.weight = Parameter(zeros(num_embeddings, embedding_dim, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table; the row of `padding_idx` is 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                row = arange(self.num_embeddings).eq(self.padding_idx).unsqueeze(1)
                self.weight.become(where(row, 0.0, self.weight))


class Embedding(_Table):
    """Rows of a table by their numbers [...]: [..., embedding_dim].

    Attributes:
        weight: [num_embeddings, embedding_dim].
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
        _weight: Tensor | None = None, _freeze: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._prepare(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.weight.requires_grad_(not _freeze)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    ) -> Embedding:  # fmt: skip
        """A layer of a table [rows, width], which is not trained if `freeze`."""
        rows, width = embeddings.shape
        return cls(
            rows, width, padding_idx, max_norm, norm_type, scale_grad_by_freq, _weight=embeddings, _freeze=freeze
        )

    def forward(self, input: Tensor) -> Tensor:
        """[..., embedding_dim]."""
        return embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)

    def extra_repr(self) -> str:
        """Sizes, and what is not the usual."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            parts.append("scale_grad_by_freq=True")
        return ", ".join(parts)


class EmbeddingBag(_Table):
    """Sums, means or largest elements of rows of bags.

    Attributes:
        weight: [num_embeddings, embedding_dim].
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, mode: str = "mean", include_last_offset: bool = False,
        padding_idx: int | None = None, device: Any = None, dtype: Any = None, _weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._prepare(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """[bags, embedding_dim] of `input` [bags, rows each], or of all rows in a line and where each bag begins."""
        return embedding_bag(
            input, self.weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Sizes and mode."""
        sizes = f"{self.num_embeddings}, {self.embedding_dim}"
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{sizes}, mode={self.mode!r}{padding}"
