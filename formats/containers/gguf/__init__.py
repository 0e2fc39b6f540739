"""The GGUF container: header, keys, tensor infos, block byte order and writer."""
