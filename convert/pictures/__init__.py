"""Pictures on the command line: files and folders of them, and annotated copies."""
