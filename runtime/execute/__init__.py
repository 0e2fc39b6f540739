"""Execution on the CPU: the bytecode interpreter, thread team, workspace, compile-ahead and shape warm-up."""
