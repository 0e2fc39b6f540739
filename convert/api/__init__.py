"""The Python API of `import candle_convert`."""
