"""Audio files of a command line: read, listed and written."""
