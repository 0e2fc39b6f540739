"""Language models that several processes compute: ranks with a shard of each layer, and stages of whole layers."""
