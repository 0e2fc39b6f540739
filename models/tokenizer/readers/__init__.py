"""Tokenizer readers: from tokenizer.json, GGUF keys, SentencePiece, tiktoken and other files."""
