"""Small networks of audio with random weights, in torch, by the definitions of the packages that they come from:
torchcrepe, silero-vad and Resemblyzer; and a configuration of transformers' audio spectrogram transformer."""

import torch
from candle_convert.tests.builders.image_checkpoints import randomized
from torch import nn
from torch.nn import functional

AST = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "max_length": 40,
    "num_mel_bins": 32, "patch_size": 8, "time_stride": 6, "frequency_stride": 5, "num_labels": 5,
}  # fmt: skip
"""Configuration of a small audio spectrogram transformer."""
WAV2VEC2 = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "conv_dim": [16, 24, 24], "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2], "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "vocab_size": 32, "pad_token_id": 0,
    "num_labels": 5, "classifier_proj_size": 12,
}  # fmt: skip
"""Configuration of a small wav2vec 2.0, and of its relatives."""
LARGE = {**WAV2VEC2, "feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
"""As the large models have it."""


class Crepe(nn.Module):
    """torchcrepe's ``Crepe`` with other numbers of channels."""

    def __init__(self, channels=(8, 4, 4, 4, 4, 4)):
        super().__init__()
        for i, (before, out) in enumerate(zip((1, *channels[:-1]), channels, strict=True), 1):
            width, stride = (512, 4) if i == 1 else (64, 1)
            self.add_module(f"conv{i}", nn.Conv2d(before, out, (width, 1), (stride, 1)))
            self.add_module(f"conv{i}_BN", nn.BatchNorm2d(out, eps=0.0010000000474974513))
        self.classifier = nn.Linear(4 * channels[-1], 360)

    def forward(self, frames):
        x = frames[:, None, :, None]
        for i in range(1, 7):
            x = functional.pad(x, (0, 0, 254, 254) if i == 1 else (0, 0, 31, 32))
            x = functional.relu(getattr(self, f"conv{i}")(x))
            x = functional.max_pool2d(getattr(self, f"conv{i}_BN")(x), (2, 1), (2, 1))
        return {"probabilities": torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).flatten(1)))}


class SileroVad(nn.Module):
    """silero-vad's ``TinySileroVAD`` over consecutive frames."""

    def __init__(self):
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        for i, (before, out, stride) in enumerate(((129, 12, 1), (12, 8, 2), (8, 8, 2), (8, 16, 1)), 1):
            self.add_module(f"conv{i}", nn.Conv1d(before, out, 3, stride, 1))
        self.lstm_cell = nn.LSTMCell(16, 16)
        self.final_conv = nn.Conv1d(16, 1, 1)

    def forward(self, input, h, c):
        state, found = (h[0], c[0]), []
        for frame in input:
            x = self.stft_conv(functional.pad(frame[None], (0, 64), "reflect")[:, None])
            x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
            for i in range(1, 5):
                x = getattr(self, f"conv{i}")(x).relu()
            state = self.lstm_cell(x.squeeze(-1), state)
            found.append(torch.sigmoid(self.final_conv(state[0].relu()[..., None])).reshape(()))
        return {"speech_probs": torch.stack(found), "hn": state[0][None], "cn": state[1][None]}


class SpeakerEncoder(nn.Module):
    """Resemblyzer's ``VoiceEncoder`` with other widths."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(40, 24, 3, batch_first=True)
        self.linear = nn.Linear(24, 16)
        self.similarity_weight, self.similarity_bias = (nn.Parameter(torch.ones(1)) for _ in range(2))

    def forward(self, mels):
        return {"embeds": functional.normalize(functional.relu(self.linear(self.lstm(mels)[1][0][-1])), dim=1)}


NETWORKS = {
    "crepe": (Crepe, {"frames": (3, 1024)}),
    "silero_vad": (SileroVad, {"input": (4, 576), "h": (1, 1, 16), "c": (1, 1, 16)}),
    "speaker_encoder": (SpeakerEncoder, {"mels": (2, 160, 40)}),
}
"""By name of the architecture: the class, and the shapes of its inputs."""


def network(name):
    """A network with random weights, and random inputs."""
    kind, shapes = NETWORKS[name]
    random = torch.Generator().manual_seed(1)
    return randomized(kind()), {key: torch.randn(shape, generator=random) for key, shape in shapes.items()}
