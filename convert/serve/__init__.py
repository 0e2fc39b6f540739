"""HTTP server: models by the interfaces of OpenAI, Text Embeddings Inference, Cohere and Jina."""
