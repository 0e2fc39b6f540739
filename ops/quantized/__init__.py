"""Linear quantization: integers with a scale and a zero point."""
