"""Linear attention: a state matrix of keys times values that decays and is updated per token (Yang et al. 2024,
arXiv:2412.06464)."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.op import Tolerance, case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.shape_rules import shape_error

RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""For each update rule: whether the state decays, and whether what it already gives for a key is taken off the
value."""


def _infer(node: Inference) -> None:
    query, key, value, past = (node.shape(index) for index in range(4))
    if any(shape is not None and len(shape) != 3 for shape in (query, key, value)):
        node.fail(f"query, key and value have shapes {query}, {key} and {value}; all are of rank 3")
    heads, groups = node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    if heads < 1 or groups < 1 or heads % groups or node.attributes["update_rule"] not in RULES:
        node.fail(
            f"{heads} query heads, {groups} key heads and update_rule {node.attributes['update_rule']!r} do not fit "
            "together"
        )
    width = value[2] // groups if value is not None and isinstance(value[2], int) else None
    depth = query[2] // heads if query is not None and isinstance(query[2], int) else None
    node.set(0, node.dtype(0), None if query is None else (*query[:2], None if width is None else width * heads))
    batch = query[0] if query is not None else None
    node.set(1, node.dtype(3) or node.dtype(0), past if past is not None else (batch, groups, depth, width))


def _split(x: np.ndarray, heads: int) -> np.ndarray:
    """[batch, length, heads x size] as [length, batch, heads, size] in f32."""
    if x.ndim != 3 or x.shape[2] % heads:
        raise shape_error("LinearAttention", f"an input of shape {x.shape} does not split into {heads} heads")
    return x.astype(np.float32).reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(1, 0, 2, 3)


@op(
    "LinearAttention",
    since=27,
    types="T=real T T real T T -> 2",
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case(
            "f32[2,5,12]", "f32[2,5,12]", "f32[2,5,6]", q_num_heads=3, kv_num_heads=3, update_rule="linear", outputs=2
        ),
        case(
            "f32[2,4,16]",
            "f32[2,4,8]",
            "f32[2,4,6]",
            "f32[2,2,4,3]",
            np.full((2, 4, 2), -0.3, np.float32),
            q_num_heads=4,
            kv_num_heads=2,
            update_rule="gated",
            scale=0.5,
            outputs=2,
        ),
        case(
            "f32[1,3,4]",
            "f32[1,3,4]",
            "f32[1,3,6]",
            None,
            None,
            np.full((1, 3, 1), 0.4, np.float32),
            q_num_heads=2,
            kv_num_heads=2,
            update_rule="delta",
            outputs=2,
        ),
        case(
            "f32[1,3,4]",
            "f32[1,3,4]",
            "f32[1,3,6]",
            None,
            np.full((1, 3, 4), -0.2, np.float32),
            np.full((1, 3, 2), 0.4, np.float32),
            q_num_heads=2,
            kv_num_heads=2,
            chunk_size=2,
            outputs=2,
        ),
        case("f32[1,0,4]", "f32[1,0,4]", "f32[1,0,6]", q_num_heads=2, kv_num_heads=2, update_rule="linear", outputs=2),
    ],
)
@quiet
def linear_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [batch, length, heads x value size] of tokens [batch, length, heads x size] taken one after another, and
    the state after the last.

    The state is [batch, key heads, size, value size], held in f32; `decay` is the logarithm of what is kept of it.
    """
    if q_num_heads < 1 or kv_num_heads < 1 or q_num_heads % kv_num_heads or update_rule not in RULES:
        why = f"{q_num_heads} query heads, {kv_num_heads} key heads and rule {update_rule!r} do not fit together"
        raise shape_error("LinearAttention", why)
    gated, corrected = RULES[update_rule]
    if gated != (decay is not None) or corrected != (beta is not None):
        why = f"rule {update_rule!r} takes {'a' if gated else 'no'} decay and {'a' if corrected else 'no'} beta"
        raise shape_error("LinearAttention", why)
    q, k, v = _split(query, q_num_heads), _split(key, kv_num_heads), _split(value, kv_num_heads)
    length, batch, _, depth = q.shape
    shape = (batch, kv_num_heads, depth, v.shape[3])
    if any(item is not None and item.shape[:2] != (batch, length) for item in (decay, beta)):
        raise shape_error(
            "LinearAttention", f"decay and beta are needed for each of {counted(length, 'token')} of a batch of {batch}"
        )
    if (
        k.shape != (length, batch, kv_num_heads, depth)
        or v.shape[:2] != (length, batch)
        or (past_state is not None and past_state.shape != shape)
    ):
        why = f"query, key and value of shapes {query.shape}, {key.shape} and {value.shape} do not fit together"
        raise shape_error("LinearAttention", why)
    state = np.zeros(shape, np.float32) if past_state is None else past_state.astype(np.float32)
    kept = None if decay is None else np.exp(_split(decay, kv_num_heads))[..., None]
    rate = None if beta is None else _split(beta, kv_num_heads if beta.shape[2] == kv_num_heads else 1)
    q = q.reshape(length, batch, kv_num_heads, q_num_heads // kv_num_heads, depth)
    y = np.empty((*q.shape[:4], v.shape[3]), np.float32)
    for token in range(length):
        write, at = v[token], k[token][..., None, :]
        if kept is not None:
            state *= kept[token]
        if rate is not None:
            write = rate[token] * (write - (at @ state)[..., 0, :])
        state += at.swapaxes(2, 3) * write[..., None, :]
        y[token] = q[token] @ state
    y *= np.float32(scale) if scale else 1 / np.sqrt(np.float32(depth))
    result = y.reshape(length, batch, q_num_heads * v.shape[3]).transpose(1, 0, 2).astype(query.dtype)
    return result, state.astype(query.dtype if past_state is None else past_state.dtype)
