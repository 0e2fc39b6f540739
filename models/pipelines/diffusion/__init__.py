"""Runners of the parts of text-to-image models."""
