"""Arithmetic: element by element, reductions, matrix products."""
