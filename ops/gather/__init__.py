"""Elements by index: Gather, Scatter, NonZero, Compress."""
