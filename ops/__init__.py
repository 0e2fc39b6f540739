"""Operators, one small file each: shape rule, kernels, reference, examples. Quantized block types live in `quants/`."""
