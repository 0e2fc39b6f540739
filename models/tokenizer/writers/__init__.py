"""Tokenizer writers: GGUF keys and Hugging Face files."""
