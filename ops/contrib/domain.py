"""The domain of ONNX Runtime's own operators. Source of all of them: the operator schemas that onnxruntime ships, and docs/ContribOperators.md."""

DOMAIN = "com.microsoft"
