"""Quantized block types, one file each: how a block of a row is decoded and encoded."""
