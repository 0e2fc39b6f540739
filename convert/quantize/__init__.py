"""Weight quantization: types, importance and cost of every tensor."""
