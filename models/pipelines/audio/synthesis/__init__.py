"""Runners of models that make speech and music of a text."""
