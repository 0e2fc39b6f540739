"""Hyper-parameters in GGUF files, and deviations of llama.cpp."""
