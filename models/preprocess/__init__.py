"""Preparation of pictures as the files of a model describe it: reading, resizing, cropping, normalization."""
