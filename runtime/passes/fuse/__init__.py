"""Fusion: high-level operators are recovered from the subgraphs that exporters write for them."""
