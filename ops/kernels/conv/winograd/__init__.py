"""Winograd convolution: transforms of tiles and kernels, and products of transformed tiles."""
