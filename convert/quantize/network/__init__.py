"""Quantization of ONNX networks: requests and options."""
