"""Layers of audio models."""
