"""Passes over weights and names: selection, renaming, tying, LoRA and subgraph extraction."""
