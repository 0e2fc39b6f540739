"""CRNN as a module of torch, in small: the weights have EasyOCR's names, as models on several cards save them."""

import torch
from candle_convert.tests.builders.image_checkpoints import randomized
from torch import nn

HIDDEN, CHARACTERS = 12, 9


class Bidirectional(nn.Module):
    """An LSTM in both directions, and a linear layer."""

    def __init__(self, channels):
        super().__init__()
        self.rnn = nn.LSTM(channels, HIDDEN, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x):
        return self.linear(self.rnn(x)[0])


class Crnn(nn.Module):
    """Logits of characters, [batch, places, characters]."""

    def __init__(self):
        super().__init__()
        normed = [nn.Conv2d(12, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        again = [nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        layers = [
            *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2)),
            *(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2)),
            *(nn.Conv2d(8, 12, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d((2, 1), (2, 1))),
            *(*normed, *again, nn.MaxPool2d((2, 1), (2, 1)), nn.Conv2d(16, 16, 2), nn.ReLU()),
        ]
        self.FeatureExtraction = nn.Module()
        self.FeatureExtraction.ConvNet = nn.Sequential(*layers)
        self.SequenceModeling = nn.Sequential(Bidirectional(16), Bidirectional(HIDDEN))
        self.Prediction = nn.Linear(HIDDEN, CHARACTERS)

    def forward(self, x):
        x = self.FeatureExtraction.ConvNet(x).mean(2).permute(0, 2, 1)
        return self.Prediction(self.SequenceModeling(x))


def crnn(path):
    """A model with random weights, which are saved as a state dict whose names begin with ``module.``."""
    model = randomized(Crnn()).eval()
    torch.save({f"module.{name}": value for name, value in model.state_dict().items()}, path)
    return model
