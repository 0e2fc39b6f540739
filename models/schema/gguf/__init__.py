"""What GGUF files state of models, and what llama.cpp does with it."""
