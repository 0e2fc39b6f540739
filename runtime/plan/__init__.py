"""Planning for the CPU: a graph region at given shapes becomes a plan of buffers, kernel launches and bytecode."""
