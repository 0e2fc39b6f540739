"""Quantized block types: codecs, encoders, decoders, and schemes of prequantized checkpoints."""
