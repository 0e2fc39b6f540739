"""Block layouts and the tables that codes point into, with decoders for NumPy."""
