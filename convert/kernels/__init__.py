"""Compilation of kernels ahead of time: for models, for the library, for a wheel."""
