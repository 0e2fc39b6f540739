"""Tokenization algorithms: BPE, unigram, WordPiece, longest match, pre-tokenizers and normalizers."""
