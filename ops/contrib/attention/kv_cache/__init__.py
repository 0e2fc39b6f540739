"""KV caches of attention operators: codecs, and appending to whole, quantized and sliding caches on the device."""
