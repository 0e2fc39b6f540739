"""tinygrad, a step as one TinyJit."""

from tinygrad import Context, Tensor, TinyJit
from tinygrad.nn import optim

NAMES = {"AdamW": optim.AdamW, "SGD": optim.SGD}


class Functions:
    """The functions that models are written with."""

    relu = Tensor.relu

    @staticmethod
    def array(x):
        return Tensor(x)

    @staticmethod
    def gelu(x):
        return x * 0.5 * (1 + (x * 0.5**0.5).erf())

    @staticmethod
    def softmax(x):
        return x.softmax(-1)

    @staticmethod
    def permute(x, dims):
        return x.permute(dims)

    @staticmethod
    def rows(table, ids):
        return table[ids]

    @staticmethod
    def cross_entropy(logits, y):
        return logits.sparse_categorical_crossentropy(y)

    @staticmethod
    def layer_norm(x, scale, bias):
        return x.layernorm() * scale + bias

    @staticmethod
    def conv(x, weight, bias):
        return x.conv2d(weight, bias, padding=1)

    @staticmethod
    def max_pool(x):
        return x.max_pool2d((2, 2))

    @staticmethod
    def lstm(x, wi, wh, b):
        hidden = cell = Tensor.zeros(x.shape[0], wh.shape[1])
        gates = x @ wi.T + b
        for place in range(x.shape[1]):
            i, f, g, o = (gates[:, place] + hidden @ wh.T).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        return hidden

    @staticmethod
    def gru(x, wi, wh, bi, bh):
        hidden, gates = Tensor.zeros(x.shape[0], wh.shape[1]), x @ wi.T + bi
        for place in range(x.shape[1]):
            (r, z, n), (by_r, by_z, inside) = gates[:, place].chunk(3, 1), (hidden @ wh.T + bh).chunk(3, 1)
            update = (z + by_z).sigmoid()
            hidden = (1 - update) * (n + (r + by_r).sigmoid() * inside).tanh() + update * hidden
        return hidden


def stepper(task):
    """A function that makes steps and returns the last loss."""
    p = {name: Tensor(value) for name, value in task.weights.items()}
    for each in p.values():
        each.is_param_(True)
    batch = {name: Tensor(array).realize() for name, array in task.batch.items()}
    name, options = task.optimizer
    optimizer = NAMES[name](list(p.values()), **options)

    @TinyJit
    def step(**batch):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            loss = task.loss(Functions, p, batch)
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

    def run(count):
        for _ in range(count):
            loss = step(**batch)
        return loss.item()

    return run


PEERS = {"tinygrad": stepper}
