"""Diffusion models: autoencoders of pictures, denoising transformers."""
