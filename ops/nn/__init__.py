"""Softmax, LogSoftmax, Hardmax and SwiGLU."""
