"""Gradients of expressions, made by the gradient rules of the operators."""
