"""Rows, original names and configurations of diffusion models."""
