"""The version of candle-convert."""

__version__ = "0.1.0"
