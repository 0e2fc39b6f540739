"""Batch, layer, group, RMS, Lp and local response normalization."""
