"""Diffusion models: autoencoders of pictures."""
