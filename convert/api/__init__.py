"""The Python API behind `import candle_convert`."""
