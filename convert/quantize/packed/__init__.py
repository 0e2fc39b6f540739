"""Weights that are written as several tensors: GPTQ, AWQ, compressed-tensors, bitsandbytes."""
