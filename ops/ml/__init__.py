"""Classical machine learning: the ai.onnx.ml domain."""
