"""LinearAttention on the device: the state is updated token by token."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.plan.kernel_api import decomposed
from ..rules.decompose_cuda import Form, forms
from ..rules.expression import Term
from .linear_attention import RULES, linear_attention


@decomposed(linear_attention)
@forms
def linear_attention_of_others(form: Form) -> None:
    """The state [batch, key heads, size, value size] after each token, in f32."""
    query, key, value = map(form.input, range(3))
    past, decay, beta = map(form.optional_input, range(3, 6))
    attributes = form.attributes
    heads, groups = attributes["q_num_heads"], attributes["kv_num_heads"]
    _, corrected = RULES[attributes["update_rule"]]
    batch, length, width = query.lengths
    depth, out = width // heads, value.lengths[2] // groups

    def split(term: Term, count: int) -> Term:
        """[length, batch, heads, size] in f32."""
        wide = term.call("Cast", to=1)
        return wide.call("Reshape", form.constant([batch, length, count, -1])).call("Transpose", perm=[1, 0, 2, 3])

    def token(term: Term, index: int) -> Term:
        return term.part(0, index, index + 1).call("Squeeze", form.constant([0]))

    scale = attributes["scale"] or 1 / max(depth, 1) ** 0.5
    q, k, v = split(query, heads) * scale, split(key, groups), split(value, groups)
    zeros = form.constant(np.zeros((batch, groups, depth, out)), "float32")
    state = zeros if past is None else past.call("Cast", to=1)
    kept = None if decay is None else split(decay, groups).call("Exp").call("Unsqueeze", form.constant([-1]))
    rate = None if beta is None else split(beta, groups if beta.lengths[2] == groups else 1)
    rows = []
    for index in range(length):
        write, at = token(v, index), token(k, index).call("Unsqueeze", form.constant([3]))
        if kept is not None:
            state = state * token(kept, index)
        if rate is not None and corrected:
            read = (state * at).call("ReduceSum", form.constant([2]), keepdims=0)
            write = token(rate, index) * (write - read)
        state = state + at * write.call("Unsqueeze", form.constant([2]))
        asked = token(q, index).call("Reshape", form.constant([batch, groups, heads // groups, depth]))
        rows.append(asked.call("MatMul", state).call("Reshape", form.constant([batch, 1, heads * out])))
    found = rows[0].call("Concat", *rows[1:], axis=1) if len(rows) > 1 else rows[0]
    for index, (term, like) in enumerate(((found, query), (state, past or query))):
        if form.is_used(index):
            form.build.add("Cast", [term.value], {"to": like.dtype.onnx}, outputs=[form.node.outputs[index]])
