"""Texts that a grammar accepts, by llguidance with one token per byte."""

import llguidance


class Bytes:
    """A tokenizer in llguidance's terms."""

    eos_token_id, bos_token_id, special_token_ids = 0, None, (0,)
    tokens = (b"<eos>", *(bytes([value]) for value in range(256)))

    def __call__(self, text):
        return [value + 1 for value in (text if isinstance(text, bytes) else text.encode())]


def accepts(grammar, text):
    """Whether a grammar in Lark's notation accepts the whole text."""
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()), eos_token=[0])
    matcher = llguidance.LLMatcher(tokenizer, llguidance.grammar_from("grammar", grammar))
    assert not matcher.is_error(), matcher.get_error()
    tokens = Bytes()(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()
