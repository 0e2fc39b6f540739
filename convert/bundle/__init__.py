"""Bundles: folders that run one model with Python and NumPy, without compiling."""

MANIFEST = "bundle.json"
"""The file of a bundle that says what is in it."""
