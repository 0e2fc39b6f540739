"""Trains an LSTM to write text character by character, on Python's documentation, in candle's words.

    python examples/train_char_rnn.py [STEPS] [--save FILE] [--load FILE] [--text FILE]

A step takes 32 rows of 64 characters. `--load FILE` with 0 steps writes text of a trained model.
"""

import argparse
import pydoc_data.topics
from pathlib import Path

import candle_convert as cc

nn, F = cc.nn, cc.nn.functional
LENGTH, BATCH, WIDTH, HIDDEN = 64, 32, 32, 192
START = "The "


def documentation():
    """Python's documentation of its topics."""
    return "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))


class CharRnn(nn.Module):
    """Logits of the next character: an embedding, an LSTM, a linear layer."""

    def __init__(self, characters, vb, width=WIDTH, hidden=HIDDEN):
        super().__init__()
        self.embedding = nn.embedding(characters, width, vb.pp("embedding"))
        self.lstm = nn.lstm(width, hidden, vb.pp("lstm"), batch_first=True)
        self.head = nn.linear(hidden, characters, vb.pp("head"))

    def forward(self, tokens, state=None):
        found, state = self.lstm(self.embedding(tokens), state)
        return self.head(found), state


def train(model, variables, tokens, steps, rate=5e-3, batch=BATCH, length=LENGTH):
    """The loss of each step."""
    optimizer = cc.optim.AdamW(variables.all_vars(), lr=rate)
    losses = []
    for step in range(steps):
        starts = cc.randint(0, len(tokens) - length - 1, (batch, 1))
        rows = tokens[starts + cc.arange(length + 1)]
        logits, _ = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(variables.all_vars(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step:5}  loss {losses[-1]:.4f}")
    return losses


def written(model, characters, start, count, temperature=0.8):
    """Text that goes on from a start."""
    numbers = {character: number for number, character in enumerate(characters)}
    text, state, given = start, None, cc.tensor([[numbers[character] for character in start]])
    with cc.no_grad():
        for _ in range(count):
            logits, state = model(given, state)
            given = cc.multinomial((logits[0, -1] / temperature).softmax(-1), 1).reshape(1, 1)
            text += characters[given.item()]
    return text


def network(text):
    """The characters of a text, a model of them, and its variables."""
    characters = sorted(set(text))
    variables = nn.VarMap()
    return characters, CharRnn(len(characters), nn.VarBuilder.from_varmap(variables, cc.f32)), variables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", type=int, nargs="?", default=600)
    parser.add_argument("--text", help="file to learn from, in place of Python's documentation")
    parser.add_argument("--load", help="file of weights to begin with")
    parser.add_argument("--save", help="file of weights to write, such as char_rnn.safetensors")
    given = parser.parse_args()
    text = documentation() if given.text is None else Path(given.text).read_text(encoding="utf-8")
    cc.manual_seed(0)
    characters, model, variables = network(text)
    if given.load is not None:
        variables.load(given.load)
    numbers = {character: number for number, character in enumerate(characters)}
    missing = sorted(set(START) - set(characters))
    if missing:
        parser.error(f"the text of --text does not have {missing[0]!r} of {START!r}, with which writing begins")
    train(model, variables, cc.tensor([numbers[character] for character in text]), given.steps)
    if given.save is not None:
        variables.save(given.save)
    print(written(model, characters, START, 300))
