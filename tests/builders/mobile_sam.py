"""The image encoder of MobileSAM as a module of torch, in small: the weights have the names of its repository."""

import torch
from candle_convert.tests.builders.image_checkpoints import randomized
from candle_convert.tests.builders.segment_anything import GRID, WIDTH
from torch import nn
from torch.nn import functional

SIDE = 16 * GRID
CHANNELS, HEADS, WINDOWS = (8, 16, 24, 320), (1, 2, 3, 10), (7, 7, 5, 3)
"""Of the stages; a stage of 320 channels has the resolution of the one before."""


class Normed(nn.Module):
    """A convolution and a batch norm."""

    def __init__(self, channels, outputs, side=1, stride=1, groups=1):
        super().__init__()
        self.c = nn.Conv2d(channels, outputs, side, stride, side // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.bn(self.c(x))


class Residual(nn.Module):
    """Inverted residual block."""

    def __init__(self, channels):
        super().__init__()
        inner = 2 * channels
        self.conv1, self.conv2 = Normed(channels, inner), Normed(inner, inner, 3, groups=inner)
        self.conv3 = Normed(inner, channels)

    def forward(self, x):
        y = functional.gelu(self.conv2(functional.gelu(self.conv1(x))))
        return functional.gelu(self.conv3(y) + x)


class Merging(nn.Module):
    """What a stage ends with: the channels of the next, at half the resolution or the same."""

    def __init__(self, channels, outputs):
        super().__init__()
        stride = 1 if outputs == 320 else 2
        self.conv1, self.conv2 = Normed(channels, outputs), Normed(outputs, outputs, 3, stride, outputs)
        self.conv3 = Normed(outputs, outputs)

    def forward(self, x):
        return self.conv3(functional.gelu(self.conv2(functional.gelu(self.conv1(x)))))


class Attention(nn.Module):
    """Attention of the tokens of a window, with a bias for each distance."""

    def __init__(self, channels, heads, side):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.attention_biases = nn.Parameter(torch.zeros(heads, side * side))
        y, x = (axis.reshape(-1) for axis in torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"))
        self.distances = (y[:, None] - y).abs() * side + (x[:, None] - x).abs()

    def forward(self, x):
        windows, length, channels = x.shape
        mixed = self.qkv(self.norm(x)).view(windows, length, self.heads, -1).transpose(1, 2)
        q, k, v = mixed.split(channels // self.heads, -1)
        y = functional.scaled_dot_product_attention(q, k, v, self.attention_biases[:, self.distances])
        return self.proj(y.transpose(1, 2).reshape(windows, length, channels))


class Mlp(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.fc1, self.fc2 = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(self.norm(x))))


class Block(nn.Module):
    """Attention in windows, a depthwise convolution, a feed-forward network."""

    def __init__(self, channels, heads, side):
        super().__init__()
        self.side, self.attn, self.mlp = side, Attention(channels, heads, side), Mlp(channels)
        self.local_conv = Normed(channels, channels, 3, groups=channels)

    def forward(self, x):
        _, channels, height, width = x.shape
        last, side = x.permute(0, 2, 3, 1), self.side
        y = functional.pad(last, (0, 0, 0, -width % side, 0, -height % side))
        rows, columns = y.shape[1] // side, y.shape[2] // side
        cut = y.view(-1, rows, side, columns, side, channels).transpose(2, 3)
        found = self.attn(cut.reshape(-1, side * side, channels)).view(-1, rows, columns, side, side, channels)
        found = found.transpose(2, 3).reshape(y.shape)[:, :height, :width]
        x = self.local_conv((last + found).permute(0, 3, 1, 2))
        return x + self.mlp(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of an image."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ImageEncoder(nn.Module):
    """Embeddings of images, [batch, width, side / 16, side / 16]."""

    def __init__(self):
        super().__init__()
        first = CHANNELS[0]
        self.patch_embed = nn.Module()
        self.patch_embed.seq = nn.Sequential(Normed(3, first // 2, 3, 2), nn.GELU(), Normed(first // 2, first, 3, 2))
        self.layers = nn.ModuleList()
        for channels, heads, side, outputs in zip(CHANNELS, HEADS, WINDOWS, (*CHANNELS[1:], None), strict=True):
            layer = nn.Module()
            layer.blocks = nn.ModuleList([Residual(first) if channels == first else Block(channels, heads, side)])
            if outputs is not None:
                layer.downsample = Merging(channels, outputs)
            self.layers.append(layer)
        self.neck = nn.Sequential(
            nn.Conv2d(CHANNELS[-1], WIDTH, 1, bias=False),
            ChannelNorm(WIDTH, 1e-6),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False),
            ChannelNorm(WIDTH, 1e-6),
        )
        self.norm_head, self.head = nn.LayerNorm(CHANNELS[-1]), nn.Linear(CHANNELS[-1], 10)

    def forward(self, x):
        x = self.patch_embed.seq(x)
        for layer in self.layers:
            for block in layer.blocks:
                x = block(x)
            x = layer.downsample(x) if hasattr(layer, "downsample") else x
        return self.neck(x)


def image_encoder():
    """The module with random weights and statistics."""
    return randomized(ImageEncoder().eval())
