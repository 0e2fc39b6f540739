"""Expressions, their plans, and the tensor that holds one."""
