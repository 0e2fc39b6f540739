"""Text generation: KV caches, sampling, chat templates and streaming."""
