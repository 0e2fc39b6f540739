"""The project's operator domain. Each operator has a decomposition into ONNX operators (`Op.lower`)."""

CANDLE = "candle"
