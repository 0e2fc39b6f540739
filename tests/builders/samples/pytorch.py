"""PyTorch samples: every container of torch.save, and TorchScript."""

from pathlib import Path

from candle_convert.tests.builders.sample_arrays import arrays, written


def _torch_state() -> dict[str, object]:
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in arrays().items()}
    return {"state_dict": tensors | {"view": tensors["model.embed.weight"].T}, "epoch": 3}


def pytorch_zip(folder: Path) -> Path:
    import torch

    torch.save(_torch_state(), folder / "x.pth")
    return folder / "x.pth"


def pytorch_stream(folder: Path) -> Path:
    import torch

    torch.save(_torch_state(), folder / "x.pth", _use_new_zipfile_serialization=False)
    return folder / "x.pth"


def pytorch_script(folder: Path) -> Path:
    import torch

    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 3), torch.zeros(1, 2)), folder / "x.pt")
    return folder / "x.pt"


def pytorch_tar(folder: Path) -> Path:
    from candle_convert.tests.builders.torch_files import old_tar, tarred

    return written(folder / "x.pth", tarred(old_tar()))


SAMPLES = {"zip": pytorch_zip, "stream": pytorch_stream, "torchscript": pytorch_script, "tar": pytorch_tar}
