"""Attention over Q8_0 blocks, grids and packed sequences, and with sinks."""
