"""Data layout: regions computed in NCHW16c, with channels in blocks of sixteen."""
