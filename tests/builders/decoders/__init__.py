"""Configurations of decoders, one module a family."""
