"""Chat requests: messages of the API as messages of templates, and tool calls in the text of a model."""
