"""Containers of model files, read defensively: zip and tar archives, pickles, protocol buffers, GGUF."""
