"""Layers and losses by PyTorch's names: modules that hold parameters and settings and call `functional`."""
