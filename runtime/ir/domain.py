"""Domains of operators that are not ONNX's."""

CANDLE = "candle"
"""The project's own; each operator has a decomposition into ONNX operators (`Op.lower`)."""
COMPLEX = "candle.complex"
"""Operators of complex elements, named as the ONNX operators of real ones with ``Complex`` before it. They are computed
in NumPy."""
MICROSOFT = "com.microsoft"
"""onnxruntime's. Sources: its operator schemas, and docs/ContribOperators.md."""
