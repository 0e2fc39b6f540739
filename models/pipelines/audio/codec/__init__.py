"""Audio codecs: samples as codes of a few kbit/s, and codes as samples."""
