"""A script of a user: type checkers accept it as it stands."""

from pathlib import Path

import candle_convert as cc
import numpy as np
from candle_convert import nn


class Classifier(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, 8)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, classes)

    def forward(self, x: cc.Tensor) -> cc.Tensor:
        scores: cc.Tensor = self.out(nn.functional.relu(self.norm(self.hidden(x))))
        return scores


def arithmetic() -> cc.Tensor:
    t: cc.Tensor = cc.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=cc.f32)
    u = cc.zeros(2, 2, dtype=cc.float32, requires_grad=False) + cc.ones((2, 2))
    shape: tuple[int, ...] = t.shape
    total = (t + 1) - (1 - t) * 2 / t + t @ u + t[0] + t[:, 1:] + t[..., None].squeeze(-1) ** 2 - -t
    mask = (t > 1) & (t == u) | ~(t <= 0)
    rows, columns = shape
    t[0, 0] = 5.0
    t += 1
    mean = t.mean() + t.sum(axis=1, keepdims=True).mean() + cc.mean(t, dim=0).max()
    values, indices = t.sort(dim=-1, descending=True)
    parts = [part.relu() for part in t.split(1)]
    number: float = float(mean) + len(parts) + rows * columns + t.numel() + cc.pi
    array: np.ndarray = t.detach().numpy()
    best = int(t.argmax().item())
    same = t.dtype is cc.f32
    both = cc.cat([t, cc.exp(array)], dim=0).reshape(-1, 2).transpose(0, 1).float()
    chosen = cc.where(mask, total, values) + indices.to(cc.f32) + number + best + int(same)
    return cc.softmax(cc.matmul(chosen, both), dim=-1)


def train(steps: int) -> float:
    cc.manual_seed(0)
    model = Classifier(4, 3)
    optimizer = cc.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    schedule = cc.optim.lr_scheduler.StepLR(optimizer, step_size=10)
    inputs, labels = cc.randn(16, 4), cc.randint(0, 3, (16,))
    losses: list[float] = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    with cc.no_grad():
        assert model(inputs).shape == (16, 3)
    return losses[-1]


def files(folder: Path) -> None:
    cc.save({"weight": cc.ones(2, 2)}, folder / "a.safetensors")
    loaded = cc.load(folder / "a.safetensors")["weight"]
    report = cc.convert(folder / "a.safetensors", folder / "b.gguf", dtype="f16")
    stored: cc.StoredTensor = cc.open(folder / "b.gguf")["weight"]
    assert isinstance(loaded, cc.Tensor)
    print(loaded.sum(), report, stored.dtype, cc.hash(folder / "a.safetensors"))
    cc.onnx.export(Classifier(4, 3), cc.ones(1, 4), folder / "net.onnx", dynamic_batch=True)
    network = cc.onnx.read(folder / "net.onnx").simplify()
    print(network.graph.outputs, cc.InferenceSession(folder / "net.onnx").run(None, {"input": np.ones((2, 4), "f4")}))


def models(path: Path, folder: Path) -> None:
    cc.quantize(path, folder / "q8.gguf", "Q8_0")
    model = cc.models.load(folder / "q8.gguf")
    text: str = model.generate("In the beginning", max_new_tokens=4)
    print(text)
    decoder = cc.models.LlamaForCausalLM.from_pretrained(path)
    encoder: type[cc.models.BertModel] = cc.models.BertModel
    logits: cc.Tensor = decoder(input_ids=cc.tensor([[1, 2, 3]])).logits
    print(logits[0, -1].argmax(), encoder.__name__, cc.ops.missing(path))
