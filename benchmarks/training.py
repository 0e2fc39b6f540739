"""Training steps a second and peak memory, against torch eager and compiled, and JAX; forward, backward and update.

    python benchmarks/training.py [--models mlp,gpt] [--peers cc,torch,compile,jax] [--rounds 7] [--seconds 0.5]

Every peer runs in a process of its own with the same weights, batches and optimizer; processes take turns, and the
median of the rounds is reported with the processor time of a step, which other programs disturb less, and the loss
after the last step. `--dispatch` times ``a @ b + c`` of 8 x 8 in place of training. A peer that is not installed is
left out, as is torch.compile without a C++ compiler; a peer that fails at a model is named, and the others go on.
"""

import argparse
import importlib.util
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np

PEERS = ("cc", "eager", "torch", "compile", "jax")
"""`cc` steps under jit, `eager` without it."""
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
    "gpt": lambda: transformer(512, 0),
    "bert": lambda: transformer(30522, 2),
}


def ours(task, jitted):
    """A function that makes steps and returns the last loss."""
    import candle_convert as cc
    from candle_convert.tensors.core.expression import apply, op_named

    class Functions:
        relu, gelu, array = cc.nn.functional.relu, cc.nn.functional.gelu, cc.from_numpy

        @staticmethod
        def softmax(x):
            return x.softmax(-1)

        @staticmethod
        def permute(x, dims):
            return x.permute(*dims)

        @staticmethod
        def rows(table, ids):
            return table[ids]

        cross_entropy = cc.nn.functional.cross_entropy

        @staticmethod
        def layer_norm(x, scale, bias):
            found = apply(op_named("LayerNormalization"), [each.expression for each in (x, scale, bias)])
            return cc.LazyTensor(found)

        @staticmethod
        def conv(x, weight, bias):
            inputs = [each.expression for each in (x, weight, bias)]
            return cc.LazyTensor(apply(op_named("Conv"), inputs, {"pads": [1, 1, 1, 1]}))

        @staticmethod
        def max_pool(x):
            pooled = apply(op_named("MaxPool"), [x.expression], {"kernel_shape": [2, 2], "strides": [2, 2]})
            return cc.LazyTensor(pooled)

        @staticmethod
        def lstm(x, wi, wh, b):
            hidden = cell = cc.zeros(x.shape[0], wh.shape[1])
            for gates in (x @ wi.T + b).unbind(1):
                i, f, g, o = (gates + hidden @ wh.T).chunk(4, 1)
                cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
                hidden = o.sigmoid() * cell.tanh()
            return hidden

    p = {name: cc.tensor(value, requires_grad=True) for name, value in task.weights.items()}
    batch = {name: cc.from_numpy(value) for name, value in task.batch.items()}
    name, options = task.optimizer
    optimizer = getattr(cc.optim, name)(p.values(), **options)

    def step(batch):
        optimizer.zero_grad()
        loss = task.loss(Functions, p, batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = cc.jit(step) if jitted else step

    def run(count):
        for _ in range(count):
            loss = step(batch)
        return loss.item()

    return run


def of_torch(task, compiled):
    import torch
    from torch.nn import functional

    torch.set_num_threads(THREADS)

    class Functions:
        relu, gelu, array = functional.relu, functional.gelu, torch.from_numpy
        permute, cross_entropy = torch.permute, functional.cross_entropy

        @staticmethod
        def softmax(x):
            return x.softmax(-1)

        @staticmethod
        def rows(table, ids):
            return functional.embedding(ids, table)

        @staticmethod
        def layer_norm(x, scale, bias):
            return functional.layer_norm(x, scale.shape, scale, bias)

        @staticmethod
        def conv(x, weight, bias):
            return functional.conv2d(x, weight, bias, padding=1)

        @staticmethod
        def max_pool(x):
            return functional.max_pool2d(x, 2)

        @staticmethod
        def lstm(x, wi, wh, b):
            state = x.new_zeros(1, x.shape[0], wh.shape[1])
            flat = [wi, wh, b, torch.zeros_like(b)]
            return torch.lstm(x, (state, state), flat, True, 1, 0.0, True, False, True)[0][:, -1]

    p = {name: torch.tensor(value, requires_grad=True) for name, value in task.weights.items()}
    batch = {name: torch.from_numpy(value) for name, value in task.batch.items()}
    name, options = task.optimizer
    optimizer = getattr(torch.optim, name)(p.values(), **options)
    loss_of, update = (lambda batch: task.loss(Functions, p, batch)), optimizer.step
    if compiled:
        loss_of, update = torch.compile(loss_of), torch.compile(update)

    def run(count):
        for _ in range(count):
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()
            update()
        return loss.item()

    return run


def of_jax(task):
    import jax
    import jax.numpy as jnp

    class Functions:
        relu, array = jax.nn.relu, jnp.asarray

        @staticmethod
        def gelu(x):
            return jax.nn.gelu(x, approximate=False)

        @staticmethod
        def softmax(x):
            return jax.nn.softmax(x, -1)

        @staticmethod
        def permute(x, dims):
            return jnp.transpose(x, dims)

        @staticmethod
        def rows(table, ids):
            return table[ids]

        @staticmethod
        def cross_entropy(logits, y):
            return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), y[:, None], 1).mean()

        @staticmethod
        def layer_norm(x, scale, bias):
            centered = x - x.mean(-1, keepdims=True)
            return centered / jnp.sqrt((centered * centered).mean(-1, keepdims=True) + 1e-5) * scale + bias

        @staticmethod
        def conv(x, weight, bias):
            return jax.lax.conv(x, weight, (1, 1), "SAME") + bias[:, None, None]

        @staticmethod
        def max_pool(x):
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

        @staticmethod
        def lstm(x, wi, wh, b):
            def cell(carry, gates):
                hidden, state = carry
                i, f, g, o = jnp.split(gates + hidden @ wh.T, 4, 1)
                state = jax.nn.sigmoid(f) * state + jax.nn.sigmoid(i) * jnp.tanh(g)
                return (jax.nn.sigmoid(o) * jnp.tanh(state), state), None

            start = jnp.zeros((x.shape[0], wh.shape[1]))
            return jax.lax.scan(cell, (start, start), jnp.swapaxes(x @ wi.T + b, 0, 1))[0][0]

    rate, momentum = task.optimizer[1]["lr"], task.optimizer[1].get("momentum")

    def adamw(p, slope, state, step):
        mean, square = (beta * old + (1 - beta) * new for beta, old, new in
                        ((0.9, state[0], slope), (0.999, state[1], slope * slope)))  # fmt: skip
        scale = jnp.sqrt(square / (1 - 0.999**step)) + 1e-8
        return p * (1 - rate * 0.01) - rate * (mean / (1 - 0.9**step)) / scale, (mean, square)

    def sgd(p, slope, state, step):
        moved = momentum * state[0] + slope
        return p - rate * moved, (moved,)

    def step(p, state, number, batch):
        loss, slopes = jax.value_and_grad(lambda p: task.loss(Functions, p, batch))(p)
        made = {name: (sgd if momentum else adamw)(p[name], slopes[name], state[name], number) for name in p}
        return loss, {name: each[0] for name, each in made.items()}, {name: each[1] for name, each in made.items()}

    step = jax.jit(step, donate_argnums=(0, 1))
    batch = {name: jnp.asarray(value) for name, value in task.batch.items()}
    p = {name: jnp.array(value) for name, value in task.weights.items()}
    state = {name: tuple(jnp.zeros_like(each) for _ in range(1 if momentum else 2)) for name, each in p.items()}
    number = 0

    def run(count):
        nonlocal p, state, number
        for _ in range(count):
            number += 1
            loss, p, state = step(p, state, np.float32(number), batch)
        return float(loss)

    return run


def dispatch(peer):
    """A function that computes a small expression `count` times."""
    arrays = [np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) for _ in range(3)]
    if peer == "jax":
        import jax.numpy as jnp

        a, b, c = map(jnp.asarray, arrays)
        last = np.asarray
    elif peer == "torch":
        import torch

        a, b, c = map(torch.from_numpy, arrays)
        last = torch.Tensor.numpy
    else:
        import candle_convert as cc

        a, b, c = map(cc.from_numpy, arrays)
        last = cc.LazyTensor.numpy

    def run(count):
        for _ in range(count):
            found = last(a @ b + c)
        return float(found.sum())

    return run


def worker(peer, model):
    """Run steps as lines of standard input ask for, and answer each with seconds, processor time, loss and memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if model == "dispatch":
        run = dispatch(peer)
    else:
        task = MODELS[model]()
        made = {
            "cc": lambda: ours(task, True),
            "eager": lambda: ours(task, False),
            "torch": lambda: of_torch(task, False),
            "compile": lambda: of_torch(task, True),
            "jax": lambda: of_jax(task),
        }
        run = made[peer]()
    for line in sys.stdin:
        count = int(line)
        start, processor = time.perf_counter(), time.process_time()
        loss = run(count)
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(json.dumps([seconds, processor, loss, peak / 1024]), flush=True)


class Peer:
    """A process that makes training steps."""

    def __init__(self, name, model, threads):
        self.name = name
        names = ("OMP_NUM_THREADS", "CANDLE_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(threads))}
        environment["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={threads}"
        command = [sys.executable, __file__, "--worker", name, "--models", model, "--threads", str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.seconds, self.processor = [], []
        start = time.perf_counter()
        self.run(1)
        self.first = time.perf_counter() - start
        self.run(3)

    def run(self, count):
        """Seconds and processor seconds of a step; RuntimeError where the process has ended."""
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        seconds, processor, self.loss, self.peak = json.loads(answer)
        return seconds / count, processor / count

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def started(names, model, threads):
    """The peers that make their first steps; those that fail are printed."""
    for name in names:
        try:
            yield Peer(name, model, threads)
        except RuntimeError as failure:
            print(f"{model:8} {name:8} failed: {failure}", flush=True)


def measured(model, names, options):
    peers = list(started(names, model, options.threads))
    counts = [max(1, int(options.seconds / peer.run(3)[0])) for peer in peers]
    for _ in range(options.rounds):
        for peer, count in zip(peers, counts, strict=True):
            seconds, processor = peer.run(count)
            peer.seconds.append(seconds)
            peer.processor.append(processor)
    for peer in peers:
        median = statistics.median(peer.seconds)
        rate = f"{1e6 * median:9.1f} us" if model == "dispatch" else f"{1 / median:9.1f} steps/s"
        print(
            f"{model:8} {peer.name:8} {rate}  processor {1e3 * statistics.median(peer.processor):9.3f} ms  "
            f"first {peer.first:6.1f} s  peak {peer.peak:6.0f} MiB  value {peer.loss:.5f}",
            flush=True,
        )
        peer.close()


def available(name):
    package = {"jax": "jax", "torch": "torch", "compile": "torch"}.get(name)
    if package and importlib.util.find_spec(package) is None:
        return False
    return name != "compile" or any(map(shutil.which, ("g++", "clang++")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dispatch", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    global THREADS
    THREADS = options.threads
    if options.worker:
        worker(options.worker, options.models)
        return
    peers = [name for name in options.peers.split(",") if available(name)]
    if options.dispatch:
        measured("dispatch", [name for name in peers if name not in ("cc", "compile")], options)
        return
    for model in options.models.split(","):
        measured(model, peers, options)


if __name__ == "__main__":
    main()
