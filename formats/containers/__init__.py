"""What model files are packed in, read defensively: zip archives, tar archives, pickles, JSON."""
