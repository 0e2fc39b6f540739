"""Trains the image classifier that this folder ships: a small CNN on the 8 x 8 handwritten digits of scikit-learn, as
ONNX.

Needs torch, onnxscript and scikit-learn; some seconds on one core.

    python examples/make_digits.py        # writes examples/digits.onnx, digits.npz (test images and labels), digit.png

The digits are from the UCI repository: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (1998), CC BY
4.0.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

HERE = Path(__file__).parent
EPOCHS, BATCH, TEST = 40, 64, 400


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    train = len(images) - TEST
    for _ in range(EPOCHS):
        for chosen in torch.randperm(train).split(BATCH):
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    correct = (model(images[train:]).argmax(1) == labels[train:]).float().mean().item()
    torch.onnx.export(
        model,
        (images[:2],),
        HERE / "digits.onnx",
        input_names=["image"],
        output_names=["logits"],
        dynamo=False,
        opset_version=17,
        dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
    )
    np.savez_compressed(HERE / "digits.npz", image=images[train:].numpy(), labels=labels[train:].numpy())
    Image.fromarray((images[train, 0].numpy() * 255).astype(np.uint8)).save(HERE / "digit.png")
    print(f"top-1 {correct:.1%} of {TEST} test images")


if __name__ == "__main__":
    main()
