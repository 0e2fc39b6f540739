"""Trains the character model that this folder ships: a GRU that continues English licence text. Needs torch; about a
minute on one core.

    python examples/make_char_gru.py        # writes examples/char_gru.pth

The checkpoint is what a training script usually leaves behind: the weights under ``model_state_dict``, beside the
configuration, the characters and the last loss.
"""

from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent
CONFIG = {"embedding": 32, "hidden": 96, "steps": 600, "batch": 32, "length": 64}


class CharGRU(nn.Module):
    """Characters to the logits of the next character."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.gru = nn.GRU(embedding, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.gru(self.embed(ids))[0]))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = (HERE.parent / "LICENSE").read_text()
    characters = sorted(set(text))
    data = torch.tensor([characters.index(character) for character in text])
    model = CharGRU(len(characters), CONFIG["embedding"], CONFIG["hidden"])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    for _ in range(CONFIG["steps"]):
        starts = torch.randint(len(data) - CONFIG["length"] - 1, (CONFIG["batch"],))
        batch = torch.stack([data[start : start + CONFIG["length"] + 1] for start in starts])
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    checkpoint = {
        "model_state_dict": model.state_dict(),
        "config": CONFIG,
        "characters": "".join(characters),
        "loss": loss.item(),
    }
    torch.save(checkpoint, HERE / "char_gru.pth")
    print(f"loss {loss.item():.3f}, {sum(p.numel() for p in model.parameters())} parameters")


if __name__ == "__main__":
    main()
