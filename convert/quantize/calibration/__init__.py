"""Calibration of ONNX networks: input data, activation ranges and output loss."""
