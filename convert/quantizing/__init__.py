"""Quantizing models: which tensor gets which block type, with what importance, and what it costs."""
