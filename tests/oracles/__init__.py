"""Other implementations, which results are compared with."""
