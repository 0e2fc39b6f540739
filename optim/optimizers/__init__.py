"""Optimizers: update rules of single parameters, one module a rule."""
