"""The com.microsoft domain. Sources: operator schemas of onnxruntime, and docs/ContribOperators.md."""

DOMAIN = "com.microsoft"
