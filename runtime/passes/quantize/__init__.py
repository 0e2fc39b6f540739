"""Quantization passes: int8 with QDQ or dynamic scales, int4 weights, float8 and ggml blocks."""
