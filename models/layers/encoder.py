"""Inputs, attention and heads of bidirectional text encoders.

An encoder has the inputs ``input_ids`` [batch, length], ``attention_mask`` [batch, length] (1 for tokens, 0 for
padding) and, where the model tells segments apart, ``token_type_ids`` [batch, length], all i64, as exporters to ONNX
name them.
"""

from __future__ import annotations

from ...runtime.contract.architecture import GGUF
from ...runtime.ir.graph import Value
from .linear import embedding, head, linear
from .mlp import ACTIVATIONS, gated, plain
from .net import Net
from .norm import layer_norm
from .rope import Rotary

SHAPE = ("batch_size", "sequence_length")
MASKED = -60000.0
"""Added to the scores of padding, whose weight becomes 0; f16 holds it."""


class Encoder(Net):
    """A net with an encoder's inputs.

    Attributes:
        states: the hidden states that a pre-norm encoder begins with, and those after each layer.
    """

    states: tuple[Value, ...] = ()

    def begin(self, *, types: bool = False) -> None:
        """Declare the inputs; `types`: with ``token_type_ids``."""
        self.ids = self.input("input_ids", "i64", SHAPE)
        self.mask = self.input("attention_mask", "i64", SHAPE)
        if types:
            self.types = self.input("token_type_ids", "i64", SHAPE)

    def positions(self) -> Value:
        """Indices of the tokens, i64 [length]."""
        length = self.Squeeze(self.Shape(self.ids, start=1, end=2))
        found: Value = self.Range(self.Constant(value_int=0), length, self.Constant(value_int=1))
        return found

    def token_positions(self) -> Value:
        """Index of each token in its text, i64 [batch, length]."""
        places = self.once("places", lambda: self.Unsqueeze(self.positions(), [0]))
        return self.once("places_of_all", lambda: self.Expand(places, self.Shape(self.ids)))

    def positions_past_padding(self, pad: int) -> Value:
        """Indices of the tokens counted from `pad` + 1, `pad` for padding tokens, i64 [batch, length]
        (RoBERTa's)."""
        tokens = self.Cast(self.Not(self.Equal(self.ids, self.Constant(value_int=pad))), to=7)
        counts = self.Mul(self.CumSum(tokens, self.Constant(value_int=1)), tokens)
        found: Value = self.Add(counts, self.Constant(value_int=pad))
        return found

    def visible(self) -> Value | None:
        """Attention mask, bool [batch, 1, length, length]: every query attends to the tokens; None for no mask."""
        return self.once("visible", lambda: self.Expand(self._tokens(), self._square()))

    def _tokens(self) -> Value:
        """Whether keys are tokens, not padding, bool [batch, 1, 1, length]."""
        return self.once("tokens", lambda: self.Unsqueeze(self.Cast(self.mask, to=9), [1, 2]))

    def _square(self) -> Value:
        """The shape [batch, 1, length, length]."""
        batch, length = self.Shape(self.ids, start=0, end=1), self.Shape(self.ids, start=1, end=2)
        shape: Value = self.Concat(batch, [1], length, length, axis=0)
        return shape

    def hidden_scores(self) -> Value:
        """The additive attention mask, f32 [batch, 1, 1, length]: 0 for tokens, a large negative number for padding."""
        return self.once("hidden_scores", lambda: self.Where(self._tokens(), 0.0, MASKED))

    def distances(self) -> Value:
        """Index of the key less that of the query, i64 [length, length]."""
        places = self.positions()
        found: Value = self.Sub(self.Unsqueeze(places, [0]), self.Unsqueeze(places, [1]))
        return found

    def heads(self, x: Value, count: int) -> Value:
        """[batch, length, count x head_dim] as [batch, count, length, head_dim]."""
        value: Value = self.Transpose(self.split_heads(x, count, self.config.head_dim), perm=[0, 2, 1, 3])
        return value

    def attend(self, q: Value, k: Value, v: Value, mask: Value | None = None, scale: float | None = None) -> Value:
        """Attention output [batch, length, hidden] from queries, keys and values of that shape.

        Args:
            mask: which keys are visible (bool) or what is added to the scores (f32), broadcast to [batch, heads,
                length, length]; None for all tokens.
            scale: of the scores; None for 1 / sqrt(head_dim).
        """
        mask = self.visible() if mask is None else mask
        keys, values = (self.heads(item, self.kv_heads) for item in (k, v))
        y = self.Attention(self.heads(q, self.config.heads), keys, values, mask, scale=scale)
        return self.merge_heads(self.Transpose(y, perm=[0, 2, 1, 3]))

    def self_attention(
        self, x: Value, name: str, mask: Value | None = None, rotary: Rotary | None = None, scale: float | None = None
    ) -> Value:
        """Attention with the weights ``NAME.{q,k,v,o}``, or ``qkv`` for fused projections; see `attend` for the
        mask and the scale. Queries and keys are rotated by `rotary`."""
        q, k, v = self.projected(x, name)
        if rotary is not None:
            at = self.token_positions()
            counts = (self.config.heads, self.kv_heads)
            q, k = (rotary.rotate(self, y, count, at) for y, count in zip((q, k), counts, strict=True))
        return linear(self, self.attend(q, k, v, mask, scale), f"{name}.o")

    def projected(self, x: Value, name: str) -> tuple[Value, Value, Value]:
        """Queries, keys and values from one fused projection or three."""
        if not self.has(f"{name}.qkv.weight"):
            return linear(self, x, f"{name}.q"), linear(self, x, f"{name}.k"), linear(self, x, f"{name}.v")
        widths = [self.config.heads * self.config.head_dim, *[self.kv_heads * self.config.head_dim] * 2]
        q, k, v = self.split(linear(self, x, f"{name}.qkv"), widths)
        return q, k, v

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values: those of queries unless the model shares them."""
        return int(self.config.values.get("kv_heads", self.config.heads))

    def norm(self, x: Value, name: str) -> Value:
        """Layer norm with the model's epsilon."""
        return layer_norm(self, x, name, self.config.eps)

    def mean(self, x: Value) -> Value:
        """The mean over the tokens of each text, [batch, width]."""
        tokens = self.Unsqueeze(self.Cast(self.mask, to=1), [2])
        sums = self.ReduceSum(self.Mul(x, tokens), [1], keepdims=0)
        value: Value = self.Div(sums, self.ReduceSum(tokens, [1], keepdims=0))
        return value

    def first(self, x: Value) -> Value:
        """The first token of each text, [batch, width]."""
        value: Value = self.Gather(x, self.Constant(value_int=0), axis=1)
        return value


class UnpaddedEncoder(Encoder):
    """An encoder without the input ``attention_mask``: all positions are tokens."""

    def begin(self, *, types: bool = False) -> None:
        """Declare the inputs."""
        self.ids = self.input("input_ids", "i64", SHAPE)
        self.mask = self.Expand([1], self.Shape(self.ids))
        if types:
            self.types = self.input("token_type_ids", "i64", SHAPE)


def bert_embeddings(net: Encoder, positions: Value) -> Value:
    """The sum of token, position and segment embeddings, normalized. A model without ``token_type_ids`` has one
    segment."""
    x: Value = embedding(net, net.ids, "embed")
    if net.has("types.weight"):
        several = net.config.types > 1
        ids = net.types if several else net.Mul(net.ids, net.Constant(value_int=0))
        x = net.Add(x, embedding(net, ids, "types"))
    if net.has("positions.weight"):
        x = net.Add(x, embedding(net, positions, "positions"))
    return net.norm(x, "embed_norm")


def post_norm_layer(
    net: Encoder, x: Value, name: str, mask: Value | None = None, rotary: Rotary | None = None
) -> Value:
    """Attention, then a feed-forward network, each added to its input and normalized (Vaswani et al. 2017,
    arXiv:1706.03762). The network is gated if it has a gate."""
    x = net.norm(net.Add(net.self_attention(x, f"{name}.attn", mask, rotary), x), f"{name}.attn_norm")
    feed_forward = gated if net.has(f"{name}.mlp.gate.weight") else plain
    return net.norm(net.Add(feed_forward(net, x, f"{name}.mlp", net.config.act), x), f"{name}.mlp_norm")


def pre_norm_encoder(net: Encoder, mask: Value | None = None) -> Value:
    """Token and position embeddings, layers that normalize their input, and a norm (Radford et al. 2019; CLIP's and
    SigLIP's text encoders); `mask` as of `Encoder.attend`."""
    x = net.Add(embedding(net, net.ids, "embed"), embedding(net, net.positions(), "positions"))
    net.states = (x,)
    for i in range(net.config.layers):
        name = f"layers.{i}"
        x = net.Add(x, net.self_attention(net.norm(x, f"{name}.attn_norm"), f"{name}.attn", mask))
        x = net.Add(x, plain(net, net.norm(x, f"{name}.mlp_norm"), f"{name}.mlp", net.config.act))
        net.states += (x,)
    return net.norm(x, "norm")


def hidden_states(net: Encoder, x: Value) -> None:
    """Outputs ``last_hidden_state`` [batch, length, hidden] and, if the model has a pooler, ``pooler_output`` [batch,
    hidden]."""
    net.output("last_hidden_state", x)
    if net.has("pooler.weight"):
        net.output("pooler_output", pooled(net, x))


def pooled(net: Encoder, x: Value) -> Value:
    """tanh of a linear layer on the first token, [batch, hidden]."""
    value: Value = net.Tanh(linear(net, net.first(x), "pooler"))
    return value


def masked_lm(net: Encoder, x: Value, kind: str | None = None) -> None:
    """Output ``logits`` [batch, length, vocabulary]; `kind`: the activation, None for the model's."""
    y = ACTIVATIONS[kind or net.config.act](net, linear(net, x, "lm.dense"))
    output_masked(net, net.norm(y, "lm.norm"))


def output_masked(net: Encoder, x: Value) -> None:
    """Output ``logits`` [batch, length, vocabulary] of the last layer before the head."""
    y = head(net, x, "lm.head")
    shared = net.has("lm.bias") and not net.has("lm.head.bias")
    net.output("logits", net.Add(y, net.vector("lm.bias")) if shared else y)


def classify_pooled(net: Encoder, x: Value) -> None:
    """Output ``logits`` [batch, labels] of the pooled text; of the first token for GGUF files without a pooler."""
    y = net.first(x) if net.config.names == GGUF and not net.has("pooler.weight") else pooled(net, x)
    net.output("logits", linear(net, y, "classifier"))


def classify_first(net: Encoder, x: Value, kind: str = "tanh") -> None:
    """Output ``logits`` [batch, labels] of a hidden layer on the first token; `kind`: its activation, or ``tanh``."""
    y = linear(net, net.first(x), "classifier_dense")
    net.output("logits", linear(net, net.Tanh(y) if kind == "tanh" else ACTIVATIONS[kind](net, y), "classifier"))


def classify_tokens(net: Encoder, x: Value) -> None:
    """Output ``logits`` [batch, length, labels]."""
    net.output("logits", linear(net, x, "classifier"))


def find_answers(net: Encoder, x: Value) -> None:
    """Outputs ``start_logits`` and ``end_logits`` [batch, length]."""
    for name, scores in zip(("start_logits", "end_logits"), net.split(linear(net, x, "spans"), [1, 1]), strict=True):
        net.output(name, net.Squeeze(scores, [-1]))


def placed(net: Encoder, x: Value, features: Value, placeholder: int) -> Value:
    """Token embeddings [batch, length, hidden] in which the n-th placeholder token of a row is the n-th of its
    `features` [batch, count, hidden]."""
    stands = net.Equal(net.ids, net.Constant(value_int=placeholder))
    counts = net.CumSum(net.Cast(stands, to=7), net.Constant(value_int=1))
    index = net.Max(net.Sub(counts, 1), net.Constant(value_int=0))
    rows = net.GatherND(features, net.Unsqueeze(index, [2]), batch_dims=1)
    value: Value = net.Where(net.Unsqueeze(stands, [2]), rows, x)
    return value


def tower_outputs(net: Net, x: Value, pooled: Value, projection: str, projected: str) -> None:
    """Declare ``last_hidden_state`` `x` [batch, length, hidden], and ``pooler_output`` `pooled` [batch, hidden]; with
    the weight of the layer `projection` the second one is its result under the name `projected`."""
    net.output("last_hidden_state", x)
    if net.has(f"{projection}.weight"):
        net.output(projected, linear(net, pooled, projection))
    else:
        net.output("pooler_output", pooled)
