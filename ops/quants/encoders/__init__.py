"""Compiled encoders, one module for each module of codecs."""
