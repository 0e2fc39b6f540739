"""Domains of operators that are not ONNX's."""

CANDLE = "candle"
"""The project's own; each operator has a decomposition into ONNX operators (`Op.lower`)."""
MICROSOFT = "com.microsoft"
"""onnxruntime's. Sources: its operator schemas, and docs/ContribOperators.md."""
