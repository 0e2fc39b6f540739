"""The ONNX container: protocol buffers, messages to graph and back, checker and opset lowering."""
