"""Commands, one module each with a constant `COMMAND`; heavy imports belong inside the functions, so that --help stays
fast."""
