"""The terminal: text and JSON output, progress bars, tables, interrupts and worker threads."""
