"""Required weights: what llama.cpp's loader of an architecture insists on, and models may lack
(`Architecture.gguf_required`)."""

from __future__ import annotations

OWN_HEAD: dict[str, str | None] = {"head.weight": "embed.weight"}
"""The matrix of the logits, which a tied model shares with its embedding."""
CONVOLUTION_BIAS: dict[str, str | None] = {"layers.{i}.conv.bias": None}
OUTPUT_BIAS: dict[str, str | None] = {"layers.{i}.attn.o.bias": None}
