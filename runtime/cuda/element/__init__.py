"""Elements on the device: how each dtype and each quantized storage is loaded, rounded and stored."""
