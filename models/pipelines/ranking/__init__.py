"""Ranking of documents: by a language model's answer, or by vectors of all tokens."""
