"""Layers of denoising networks."""
