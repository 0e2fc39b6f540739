"""Signals: Fourier transforms, windows, mel weights."""
