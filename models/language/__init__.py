"""Language models at work: caches from run to run, sampling, tokens to text."""
