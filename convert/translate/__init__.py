"""Translation between formats: weight names, hyper-parameter keys, tokenizers and model cards."""
