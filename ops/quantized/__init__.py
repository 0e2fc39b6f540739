"""Linear quantization: numbers as integers with scale and zero point."""
