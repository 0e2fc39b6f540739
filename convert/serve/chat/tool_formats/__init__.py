"""How families of models write calls of tools: a module declares its own in the constant ``TOOL_FORMAT``."""
