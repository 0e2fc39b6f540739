"""Text encoder for texts that lie one after another in one row, without padding.

Its inputs are ``input_ids``, ``position_ids`` (index of each token in its text) and, where the model tells segments
apart, ``token_type_ids``, all i64 [1, tokens], and ``sequence_ends`` i64 [texts], as of the operator PackedAttention.
"""

from __future__ import annotations

from ...runtime.ir.graph import Value
from .encoder import Encoder

PACKED = "packed"
"""Name of the variant of a task's graph."""
TOKENS = (1, "tokens")


class NotPackable(Exception):
    """An encoder computes something that has no packed form, such as distances of tokens."""


class PackedEncoder(Encoder):
    """A net with the inputs of packed texts. Raises NotPackable for what depends on the lengths of a batch."""

    def begin(self, *, types: bool = False) -> None:
        """Declare the inputs; `types`: with ``token_type_ids``."""
        self.ids = self.input("input_ids", "i64", TOKENS)
        self.places = self.input("position_ids", "i64", TOKENS)
        if types:
            self.types = self.input("token_type_ids", "i64", TOKENS)
        self.ends = self.input("sequence_ends", "i64", ("texts",))

    @property
    def mask(self) -> Value:  # type: ignore[override]
        """Packed texts have no padding."""
        raise NotPackable

    def positions(self) -> Value:
        """Index of each token in its text, i64 [1, tokens]."""
        return self.places

    def token_positions(self) -> Value:
        """Index of each token in its text, i64 [1, tokens]."""
        return self.places

    def positions_past_padding(self, pad: int) -> Value:
        """Indices of the tokens counted from `pad` + 1, i64 [1, tokens]; no token is padding."""
        found: Value = self.Add(self.places, self.Constant(value_int=pad + 1))
        return found

    def distances(self) -> Value:
        """Tokens of different texts have no distance."""
        raise NotPackable

    def first(self, x: Value) -> Value:
        """The first tokens lie at different positions."""
        raise NotPackable

    def attend(self, q: Value, k: Value, v: Value, mask: Value | None = None, scale: float | None = None) -> Value:
        """Attention output [1, tokens, hidden] from queries, keys and values of that shape, within each text."""
        if mask is not None:
            raise NotPackable
        found: Value = self.PackedAttention(
            q, k, v, self.ends, domain="candle", q_num_heads=self.config.heads, kv_num_heads=self.kv_heads, scale=scale
        )
        return found


def packed_hidden_states(net: Encoder, x: Value) -> None:
    """Output ``last_hidden_state`` [1, tokens, hidden]."""
    net.output("last_hidden_state", x)
