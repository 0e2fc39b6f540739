"""Foundations: errors, limits, units and other small modules that import nothing else of this package."""

__version__ = "0.1.0"
