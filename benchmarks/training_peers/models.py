"""Models as functions of a library's functions, so that every peer computes the same from the same weights."""

import math
from dataclasses import dataclass, field

import numpy as np

LAYERS, WIDTH, HEADS = 4, 256, 4
LENGTH, BATCH = 64, 8


@dataclass
class Task:
    """A model as functions of named arrays.

    Attributes:
        weights: initial values.
        batch: inputs by name; indices are i64.
        loss: of a library's functions, weights and batch.
        optimizer: name and options.
    """

    weights: dict[str, np.ndarray]
    batch: dict[str, np.ndarray]
    loss: object
    optimizer: tuple[str, dict] = field(default_factory=lambda: ("AdamW", {"lr": 1e-3}))


def random_weights(**shapes):
    rng = np.random.default_rng(0)
    return {
        name: np.ones(shape, np.float32)
        if name.endswith("scale")
        else (rng.standard_normal(shape) / math.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)
        for name, shape in shapes.items()
    }


def mlp():
    rng = np.random.default_rng(1)
    weights = random_weights(w1=(256, 64), b1=(256,), w2=(256, 256), b2=(256,), w3=(10, 256), b3=(10,))
    batch = {"x": rng.standard_normal((64, 64)).astype(np.float32), "y": rng.integers(0, 10, 64)}

    def loss(f, p, batch):
        x = f.relu(batch["x"] @ p["w1"].T + p["b1"])
        x = f.relu(x @ p["w2"].T + p["b2"])
        return f.cross_entropy(x @ p["w3"].T + p["b3"], batch["y"])

    return Task(weights, batch, loss)


def cnn():
    rng = np.random.default_rng(1)
    weights = random_weights(
        c1=(32, 3, 3, 3), b1=(32,), c2=(64, 32, 3, 3), b2=(64,), c3=(64, 64, 3, 3), b3=(64,), w=(10, 1024), b=(10,)
    )
    batch = {"x": rng.standard_normal((32, 3, 32, 32)).astype(np.float32), "y": rng.integers(0, 10, 32)}

    def loss(f, p, batch):
        x = batch["x"]
        for number in (1, 2, 3):
            x = f.max_pool(f.relu(f.conv(x, p[f"c{number}"], p[f"b{number}"])))
        return f.cross_entropy(x.reshape(32, 1024) @ p["w"].T + p["b"], batch["y"])

    return Task(weights, batch, loss, ("SGD", {"lr": 0.01, "momentum": 0.9}))


def lstm():
    rng = np.random.default_rng(1)
    weights = random_weights(wi=(512, 64), wh=(512, 128), b=(512,), w=(10, 128), bias=(10,))
    batch = {"x": rng.standard_normal((16, 32, 64)).astype(np.float32), "y": rng.integers(0, 10, 16)}

    def loss(f, p, batch):
        hidden = f.lstm(batch["x"], p["wi"], p["wh"], p["b"])
        return f.cross_entropy(hidden @ p["w"].T + p["bias"], batch["y"])

    return Task(weights, batch, loss)


def gru():
    rng = np.random.default_rng(1)
    weights = random_weights(wi=(384, 64), wh=(384, 128), bi=(384,), bh=(384,), w=(10, 128), bias=(10,))
    batch = {"x": rng.standard_normal((16, 32, 64)).astype(np.float32), "y": rng.integers(0, 10, 16)}

    def loss(f, p, batch):
        hidden = f.gru(batch["x"], p["wi"], p["wh"], p["bi"], p["bh"])
        return f.cross_entropy(hidden @ p["w"].T + p["bias"], batch["y"])

    return Task(weights, batch, loss)


def transformer(vocabulary, classes):
    """A decoder that predicts the next token, or an encoder that classifies."""
    rng = np.random.default_rng(1)
    shapes = {"tokens": (vocabulary, WIDTH), "positions": (LENGTH, WIDTH)}
    for number in range(LAYERS):
        shapes |= {
            f"{number}.norm1.scale": (WIDTH,), f"{number}.norm1.bias": (WIDTH,),
            f"{number}.qkv": (3 * WIDTH, WIDTH), f"{number}.qkv.bias": (3 * WIDTH,),
            f"{number}.out": (WIDTH, WIDTH), f"{number}.out.bias": (WIDTH,),
            f"{number}.norm2.scale": (WIDTH,), f"{number}.norm2.bias": (WIDTH,),
            f"{number}.up": (4 * WIDTH, WIDTH), f"{number}.up.bias": (4 * WIDTH,),
            f"{number}.down": (WIDTH, 4 * WIDTH), f"{number}.down.bias": (WIDTH,),
        }  # fmt: skip
    shapes |= {"norm.scale": (WIDTH,), "norm.bias": (WIDTH,)}
    if classes:
        shapes |= {"head": (classes, WIDTH), "head.bias": (classes,)}
    weights = random_weights(**shapes)
    weights["tokens"] *= 0.2
    y = rng.integers(0, classes, BATCH) if classes else rng.integers(0, vocabulary, (BATCH * LENGTH,))
    batch = {"ids": rng.integers(0, vocabulary, (BATCH, LENGTH)), "y": y}
    mask = None if classes else np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)

    def linear(p, name, x):
        return x @ p[name].T + p[f"{name}.bias"]

    def attention(f, p, name, x):
        heads = linear(p, f"{name}.qkv", x).reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = (f.permute(heads[:, :, part], (0, 2, 1, 3)) for part in range(3))
        scores = (q @ f.permute(k, (0, 1, 3, 2))) * (WIDTH // HEADS) ** -0.5
        scores = scores if mask is None else scores + f.array(mask)
        mixed = f.permute(f.softmax(scores) @ v, (0, 2, 1, 3)).reshape(BATCH, LENGTH, WIDTH)
        return linear(p, f"{name}.out", mixed)

    def loss(f, p, batch):
        x = f.rows(p["tokens"], batch["ids"]) + p["positions"]
        for number in map(str, range(LAYERS)):
            norms = [(p[f"{number}.norm{each}.scale"], p[f"{number}.norm{each}.bias"]) for each in (1, 2)]
            x = x + attention(f, p, number, f.layer_norm(x, *norms[0]))
            x = x + linear(p, f"{number}.down", f.gelu(linear(p, f"{number}.up", f.layer_norm(x, *norms[1]))))
        x = f.layer_norm(x, p["norm.scale"], p["norm.bias"])
        if classes:
            return f.cross_entropy(linear(p, "head", x[:, 0]), batch["y"])
        return f.cross_entropy((x @ p["tokens"].T).reshape(BATCH * LENGTH, vocabulary), batch["y"])

    return Task(weights, batch, loss)


MODELS = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "gru": gru,
    "gpt": lambda: transformer(512, 0),
    "bert": lambda: transformer(30522, 2),
}
