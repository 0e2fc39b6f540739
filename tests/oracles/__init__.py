"""Reference implementations to compare results with, and limits of processor time."""
