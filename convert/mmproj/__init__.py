"""Multimodal models in llama.cpp's two files: the language model's, and that of encoders and projector (mmproj)."""
