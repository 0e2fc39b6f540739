"""Adapters by which other packages accept our tensors as those of a framework that they know."""
