"""Pooling fast paths."""
