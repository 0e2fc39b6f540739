"""The pickle stack machine: opcodes, inert objects and allow-listed constructors; no code is executed."""
