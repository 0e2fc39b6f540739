"""The domain of the operators that ONNX lacks. Each can be expressed by ONNX's (`Op.lower`), at the price of memory or time."""

CANDLE = "candle"
