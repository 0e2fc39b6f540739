"""Cast, CastLike, BitCast and the ONNX conversion rules."""
