"""Tensor parallelism: a model is partitioned over several ranks."""
