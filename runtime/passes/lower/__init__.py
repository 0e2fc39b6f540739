"""Lowering: operators expressed by other operators."""
