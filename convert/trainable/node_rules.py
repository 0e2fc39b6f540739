"""Rules for nodes of a model's graph in training: dropout where the family has it, linear layers whose weights stay in
blocks, and adapters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import TEXT_CLASSIFICATION
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.registry import onnx, operator
from ...runtime.tensor.dtype import BlockType
from ...tensors.core.expression import Expression, apply, apply_all
from ...tensors.core.tensor import Tensor
from ...tensors.graph_function import Rule
from ...tensors.namespace import PUBLIC

HIDDEN = ("hidden_dropout_prob", "resid_pdrop", "resid_dropout", "hidden_dropout", "dropout")
ATTENTION = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
EMBEDDED = ("embd_pdrop", "embed_dropout", "embedding_dropout")
CLASSIFIER = ("classifier_dropout", "seq_classif_dropout", "classifier_dropout_prob")
"""Keys of config.json, of which the first that a file has counts."""
AFTER = re.compile(r"(?:layers|blocks)\.\d+\.(?:attn\.(?:o|proj)|mlp\.(?:down|fc2))$")
"""Own names of linear layers whose results are added to what the layer was given."""
EMBEDDING_NORM, HEAD = "embed_norm", "classifier"


@dataclass(frozen=True)
class Linear:
    """A product with a transposed weight.

    Attributes:
        name: the weight's own name, without its ending.
        product: the MatMul; last: the node of the layer's result, where a bias is added.
    """

    name: str
    product: Node
    last: Node


@dataclass(frozen=True)
class Dropouts:
    """Probabilities that config.json states; None where it states none."""

    hidden: float | None
    attention: float | None
    embedded: float | None
    classifier: float | None

    def any(self) -> bool:
        """Whether an element is ever dropped."""
        return any((self.hidden, self.attention, self.embedded, self.classifier))


def dropouts_of(stated: Mapping[str, Any]) -> Dropouts:
    """Dropout probabilities in config.json; a classifier without its own has that of hidden states."""

    def first(keys: Sequence[str]) -> float | None:
        return next((float(stated[key]) for key in keys if isinstance(stated.get(key), int | float)), None)

    hidden, head = first(HIDDEN), first(CLASSIFIER)
    embedded = first(EMBEDDED)
    return Dropouts(
        hidden, first(ATTENTION), hidden if embedded is None else embedded, hidden if head is None else head
    )


def linears(graph: Graph) -> list[Linear]:
    """The linear layers of a graph."""
    uses: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                uses.setdefault(value, []).append(node)
    found = []
    for node in graph.nodes:
        right = node.inputs[1].producer if node.op is onnx.MatMul and node.inputs[1] is not None else None
        weight = right.inputs[0] if right is not None and right.op is onnx.Transpose else None
        if weight is None or weight.name not in graph.weights or len(weight.shape or ()) != 2:
            continue
        name = weight.name.removesuffix(".weight")
        after = [each for each in uses.get(node.outputs[0], ()) if each.op is onnx.Add]
        biased = [
            each for each in after if any(value is not None and value.name == f"{name}.bias" for value in each.inputs)
        ]
        found.append(Linear(name, node, biased[0] if len(biased) == 1 else node))
    return found


def block_rules(graph: Graph) -> dict[Node, Rule]:
    """Linear layers whose weights are quantized: these are decoded a few rows at a time, forward and backward."""
    rules: dict[Node, Rule] = {}
    for each in linears(graph):
        if isinstance(graph.weights[f"{each.name}.weight"].dtype, BlockType):
            rules[each.product] = _stored_product
    return rules


def resize_rules(graph: Graph) -> dict[Node, Rule]:
    """Position embeddings that are asked for in their own size are not resized."""

    def kept(node: Node) -> Rule:
        def rule(inputs: Sequence[Expression | None]) -> Sequence[Expression]:
            made = apply_all(node.op, inputs, node.attributes, 1)
            same = inputs[0] is not None and made[0].type is inputs[0].type
            return [inputs[0]] if same and inputs[0] is not None else made

        return rule

    return {node: kept(node) for node in graph.nodes if node.op is onnx.Resize}


def _stored_product(inputs: Sequence[Expression | None]) -> Sequence[Expression]:
    x, transposed = inputs
    assert transposed is not None
    linear = operator("Linear", CANDLE)
    assert linear is not None
    return [apply(linear, [x, transposed.inputs[0]])]


def dropout_rules(graph: Graph, dropouts: Dropouts, task: str, rules: dict[Node, Rule]) -> bool:
    """Add dropout to the rules of a graph in training. Returns whether it applies to hidden states."""
    placed = False
    for each in linears(graph):
        if dropouts.hidden and AFTER.search(each.name):
            rules[each.last] = _after(each.last, rules.get(each.last), dropouts.hidden)
            placed = True
        if dropouts.classifier and each.name == HEAD and task == TEXT_CLASSIFICATION:
            rules[each.product] = _before(each.product, rules.get(each.product), dropouts.classifier)
    for node in graph.nodes:
        norm = any(value is not None and value.name == f"{EMBEDDING_NORM}.weight" for value in node.inputs)
        if dropouts.embedded and norm:
            rules[node] = _after(node, rules.get(node), dropouts.embedded)
        if dropouts.attention and node.op is onnx.Attention:
            rules[node] = _dropping_attention(node, dropouts.attention)
    return placed or not dropouts.hidden


def computed(node: Node, rule: Rule | None, inputs: Sequence[Expression | None]) -> Sequence[Expression]:
    """The outputs of a node by a rule or its operator."""
    return apply_all(node.op, inputs, node.attributes, len(node.outputs)) if rule is None else rule(inputs)


def dropped(x: Tensor, p: float) -> Tensor:
    """Dropout: elements are 0 with the probability `p`, others are divided by 1 - p."""
    kept = PUBLIC["rand_like"](x) >= p
    return x * (kept.to(x.dtype) / (1 - p))


def _after(node: Node, rule: Rule | None, p: float) -> Rule:
    def after(inputs: Sequence[Expression | None]) -> Sequence[Expression]:
        first, *others = computed(node, rule, inputs)
        return [dropped(Tensor(first), p).expression, *others]

    return after


def _before(node: Node, rule: Rule | None, p: float) -> Rule:
    def before(inputs: Sequence[Expression | None]) -> Sequence[Expression]:
        first, *others = inputs
        assert first is not None
        return computed(node, rule, [dropped(Tensor(first), p).expression, *others])

    return before


def _dropping_attention(node: Node, p: float) -> Rule:
    """Attention over heads [batch, heads, length, size] with dropout of its weights."""
    scale, softcap = node.attributes.get("scale"), node.attributes.get("softcap")
    causal = bool(node.attributes.get("is_causal"))

    def attention(inputs: Sequence[Expression | None]) -> Sequence[Expression]:
        q, k, v, *rest = (None if each is None else Tensor(each) for each in inputs)
        assert q is not None
        assert k is not None
        assert v is not None
        copies = q.shape[1] // k.shape[1]
        if copies > 1:
            k, v = (each.repeat_interleave(copies, 1) for each in (k, v))
        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        scores = (scores / softcap).tanh() * softcap if softcap else scores
        mask = rest[0] if rest else None
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), -math.inf) if mask.dtype.kind == "bool" else scores + mask
        if causal:
            ones = PUBLIC["ones"](q.shape[-2], k.shape[-2], dtype="bool")
            scores = scores.masked_fill(ones.tril().logical_not(), -math.inf)
        return [(dropped(scores.softmax(-1), p) @ v).expression]

    return attention
