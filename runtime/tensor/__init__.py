"""Tensors: dtypes, storage that is read on demand, lazy casts and views, block codecs and run-time weights."""
