"""Quantization of ONNX networks: calibration, activation ranges and output loss."""
