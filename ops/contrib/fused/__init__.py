"""Fused operators of com.microsoft: Gelu, SkipLayerNorm, MoE, FusedConv."""
