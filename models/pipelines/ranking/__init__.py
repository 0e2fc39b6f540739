"""Ranking of documents by a language model's answer."""
