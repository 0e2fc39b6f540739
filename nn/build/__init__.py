"""Layers built from the tensors of a file by their names, in candle's idiom."""
