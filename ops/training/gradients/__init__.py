"""Gradient rules of operators, one module a folder of operators."""
