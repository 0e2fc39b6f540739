"""Trains a small GPT on the documentation that Python brings along, character by character, and lets it write.

    python examples/train_character_gpt.py [STEPS]

The module is Lightning's: `import lightning` in place of the names of cc would train it with torch.
"""

import pydoc_data.topics
import sys

import candle_convert as cc

LENGTH, WIDTH, HEADS, LAYERS = 64, 128, 4, 2


def text():
    """Python's documentation of its topics."""
    return "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))


def network(m, tokens, width=WIDTH, length=LENGTH, layers=LAYERS):
    """A GPT of tokens [batch, rows] in the words of torch; `m` is torch or candle_convert."""

    class Block(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = m.nn.LayerNorm(width), m.nn.LayerNorm(width)
            self.project, self.out = m.nn.Linear(width, 3 * width), m.nn.Linear(width, width)
            self.up, self.down = m.nn.Linear(width, 4 * width), m.nn.Linear(4 * width, width)
            self.register_buffer("mask", m.ones(length, length).tril().reshape(1, 1, length, length) == 0)

        def forward(self, x):
            batch, rows, _ = x.shape
            parts = self.project(self.norm_1(x)).reshape(batch, rows, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
            q, k, v = parts[0], parts[1], parts[2]
            weights = (q @ k.transpose(-2, -1)) * (width // HEADS) ** -0.5
            weights = weights.masked_fill(self.mask[:, :, :rows, :rows], -1e9).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, rows, width))
            return x + self.down(m.nn.functional.gelu(self.up(self.norm_2(x))))

    class GPT(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = m.nn.Embedding(tokens, width), m.nn.Embedding(length, width)
            self.blocks = m.nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = m.nn.LayerNorm(width), m.nn.Linear(width, tokens)

        def forward(self, given):
            x = self.token(given) + self.position(m.arange(given.shape[1]))
            return self.head(self.norm(self.blocks(x)))

    return GPT()


class Writer(cc.LightningModule):
    """Learns the next character."""

    def __init__(self, tokens, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = network(cc, tokens)

    def training_step(self, batch, batch_idx):
        given, following = batch
        loss = cc.nn.functional.cross_entropy(self.net(given).flatten(0, 1), following.flatten())
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return cc.optim.AdamW(self.parameters(), lr=self.hparams.lr)

    def written(self, vocabulary, start, count):
        """Text that goes on from a start."""
        tokens = vocabulary.encode(start)
        self.eval()
        with cc.no_grad():
            for _ in range(count):
                logits = self.net(cc.tensor([tokens[-LENGTH:]]))[0, -1]
                noise = -(-cc.rand(logits.shape).log()).log()
                tokens.append(int((logits / 0.8 + noise).argmax()))
        return vocabulary.decode(tokens)


if __name__ == "__main__":
    cc.manual_seed(0)
    vocabulary = cc.data.Vocabulary(text())
    rows = cc.data.TokenDataset(vocabulary.encode(text()), LENGTH)
    module = Writer(len(vocabulary))
    trainer = cc.Trainer(max_steps=int(sys.argv[1]) if sys.argv[1:] else 1000, log_every_n_steps=10)
    trainer.fit(module, cc.data.DataLoader(rows, 16, shuffle=True, drop_last=True))
    print(module.written(vocabulary, "The ", 200))
