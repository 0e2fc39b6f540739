"""Kernels of functions that a program brings itself."""
