"""Image encoders of patches of several pictures of any size, one after another in one row."""
