"""Flash attention (Dao 2023, arXiv:2307.08691) as kernels of the user's, with its gradient.

Run it: ``python examples/flash_attention.py``. No scores are stored: a row of the result keeps its running maximum and
sum, and the gradient computes the weights again from the logarithms of these sums.
"""

import math

import candle_convert as cc


def query_rows(q, *others):
    """A row for each query of each head."""
    return q.shape[0] * q.shape[1]


def key_rows(q, k, *others):
    """A row for each key of each head."""
    return k.shape[0] * k.shape[1]


@cc.kernel(rows=query_rows, results=lambda q, k, v: [(*q.shape[:2], v.shape[2]), q.shape[:2]])
def flash_attention(row, q, k, v, y, logs, scale=1.0, causal=False):
    """Outputs [heads, queries, size] and the logarithm of the sum of exponents of each query, from q, k and v in
    heads."""
    head, query = row // q.shape[1], row % q.shape[1]
    last = query + 1 + k.shape[1] - q.shape[1] if causal else k.shape[1]
    largest, total = -math.inf, 0.0
    for d in range(v.shape[2]):
        y[head, query, d] = 0
    for key in range(last):
        score = 0.0
        for d in range(q.shape[2]):
            score += q[head, query, d] * k[head, key, d]
        score *= scale
        if score > largest:
            shrink = math.exp(largest - score)
            largest = score
            total *= shrink
            for d in range(v.shape[2]):
                y[head, query, d] *= shrink
        weight = math.exp(score - largest)
        total += weight
        for d in range(v.shape[2]):
            y[head, query, d] += weight * v[head, key, d]
    for d in range(v.shape[2]):
        y[head, query, d] /= total
    logs[head, query] = largest + math.log(total)


@cc.kernel(rows=query_rows, results=lambda q, *others: q.shape)
def grad_of_queries(row, q, k, v, grad, logs, drift, by_q, scale=1.0, causal=False):
    """The gradient of a query: of each of its scores, times the keys."""
    head, query = row // q.shape[1], row % q.shape[1]
    last = query + 1 + k.shape[1] - q.shape[1] if causal else k.shape[1]
    for d in range(q.shape[2]):
        by_q[head, query, d] = 0
    for key in range(last):
        score, by_weight = 0.0, 0.0
        for d in range(q.shape[2]):
            score += q[head, query, d] * k[head, key, d]
        for d in range(v.shape[2]):
            by_weight += grad[head, query, d] * v[head, key, d]
        weight = math.exp(score * scale - logs[head, query])
        by_score = weight * (by_weight - drift[head, query]) * scale
        for d in range(q.shape[2]):
            by_q[head, query, d] += by_score * k[head, key, d]


@cc.kernel(rows=key_rows, results=lambda q, k, v, *others: [k.shape, v.shape])
def grads_of_keys(row, q, k, v, grad, logs, drift, by_k, by_v, scale=1.0, causal=False):
    """The gradients of a key and its value, over the queries that see it."""
    head, key = row // k.shape[1], row % k.shape[1]
    first = max(key - (k.shape[1] - q.shape[1]), 0) if causal else 0
    for d in range(q.shape[2]):
        by_k[head, key, d] = 0
    for d in range(v.shape[2]):
        by_v[head, key, d] = 0
    for query in range(first, q.shape[1]):
        score, by_weight = 0.0, 0.0
        for d in range(q.shape[2]):
            score += q[head, query, d] * k[head, key, d]
        for d in range(v.shape[2]):
            by_weight += grad[head, query, d] * v[head, key, d]
        weight = math.exp(score * scale - logs[head, query])
        by_score = weight * (by_weight - drift[head, query]) * scale
        for d in range(q.shape[2]):
            by_k[head, key, d] += by_score * q[head, query, d]
        for d in range(v.shape[2]):
            by_v[head, key, d] += weight * grad[head, query, d]


@flash_attention.gradient
def flash_gradient(grads, q, k, v, scale, causal):
    """The outputs are those of the forward run, which is not repeated."""
    grad, by_logs = grads
    y, logs = flash_attention(q, k, v, scale=scale, causal=causal)
    drift = (grad * y).sum(-1) - by_logs
    given = q, k, v, grad, logs, drift
    by_q = grad_of_queries(*given, scale=scale, causal=causal)
    return by_q, *grads_of_keys(*given, scale=scale, causal=causal)


def main() -> None:
    """Compare with attention written with operations."""
    cc.manual_seed(0)
    q, k, v = (cc.randn(4, 64, 32).requires_grad_() for _ in range(3))
    y, _ = flash_attention(q, k, v, scale=32**-0.5)
    plain = cc.softmax(q @ k.mT * 32**-0.5, -1) @ v
    print(f"largest difference {(y - plain).abs().max().item():.1e}")
    found, expected = (cc.gradients((each**2).sum(), [q, k, v]) for each in (y, plain))
    for name, one, other in zip("qkv", found, expected, strict=True):
        print(f"of the gradient of {name} {(one - other).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
