"""A tokenizer whose tokens are numbers: for checkpoints of random weights, which have none."""

from candle_convert.models.tokenizer.core.vocabulary import NORMAL, Vocabulary


class NumberedTokens:
    """Token 7 is the text "7 "; no token ends a text."""

    ends = frozenset()
    languages = None

    def __init__(self, count):
        self.count = count
        self.vocabulary = Vocabulary([f"{token} " for token in range(count)], [NORMAL] * count)

    def __len__(self):
        return self.count

    def encode(self, text):
        return [int(word) for word in text.split()]

    def decode(self, ids):
        return "".join(f"{token} " for token in ids)

    def stream(self, before=()):
        return self

    def push(self, token):
        return f"{token} "

    def finish(self):
        return ""
