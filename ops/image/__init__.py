"""Images: resizing, sampling, regions, decoding."""
