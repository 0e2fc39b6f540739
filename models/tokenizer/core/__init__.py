"""Tokenizer and vocabulary: special tokens, lookup and streaming."""
