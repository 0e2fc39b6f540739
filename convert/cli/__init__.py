"""The command line: the click group, options that commands share, suggestions and exit codes."""
