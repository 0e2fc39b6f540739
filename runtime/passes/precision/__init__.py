"""Precision: casts of weights, f16 and bf16 networks, mixed precision and half-precision KV caches."""
