"""Data for training: datasets, loaders, pictures in folders, texts; the interface is that of torch.utils.data."""

from __future__ import annotations

from .collate import default_collate as default_collate
from .collate import default_convert as default_convert
from .dataset import ConcatDataset as ConcatDataset
from .dataset import Dataset as Dataset
from .dataset import IterableDataset as IterableDataset
from .dataset import Subset as Subset
from .dataset import TensorDataset as TensorDataset
from .dataset import random_split as random_split
from .loader import DataLoader as DataLoader
from .loader import get_worker_info as get_worker_info
from .pictures import ImageFolder as ImageFolder
from .samplers import BatchSampler as BatchSampler
from .samplers import RandomSampler as RandomSampler
from .samplers import Sampler as Sampler
from .samplers import SequentialSampler as SequentialSampler
from .samplers import SubsetRandomSampler as SubsetRandomSampler
from .samplers import WeightedRandomSampler as WeightedRandomSampler
from .texts import TokenDataset as TokenDataset
from .texts import Vocabulary as Vocabulary

__all__ = [
    "BatchSampler", "ConcatDataset", "DataLoader", "Dataset", "ImageFolder", "IterableDataset", "RandomSampler",
    "Sampler", "SequentialSampler", "Subset", "SubsetRandomSampler", "TensorDataset", "TokenDataset", "Vocabulary",
    "WeightedRandomSampler", "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
