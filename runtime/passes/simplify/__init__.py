"""Simplification: a smaller graph with the same results."""
