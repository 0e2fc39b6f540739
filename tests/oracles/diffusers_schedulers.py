"""Schedulers of diffusers, run with given model outputs and noise."""

import contextlib
import importlib
import sys
import types
from unittest.mock import patch

import pytest

MODULES = {"DPMSolverSDEScheduler": "scheduling_dpmsolver_sde"}
"""Modules of schedulers whose names diffusers gives only where torchsde is installed; it serves their noise alone."""
CONTINUOUS = "DDPMWuerstchenScheduler"
"""The scheduler whose timesteps end with that of the finished sample, and go through the network as arrays."""


def scheduler(name, options):
    """A scheduler of diffusers by the name of its class."""
    diffusers = pytest.importorskip("diffusers")
    if name not in MODULES:
        return getattr(diffusers, name)(**options)
    with patch.dict(sys.modules, {"torchsde": types.ModuleType("torchsde")}):
        module = importlib.import_module(f"diffusers.schedulers.{MODULES[name]}")
    return getattr(module, name)(**options)


def timesteps_of(theirs):
    """The timesteps at which the denoiser runs."""
    return theirs.timesteps[:-1] if type(theirs).__name__ == CONTINUOUS else theirs.timesteps


@contextlib.contextmanager
def noise_of(theirs, names, given):
    """Let a scheduler of diffusers draw the noise `given`; `names`: the globals of its step."""
    replaced = {
        "randn_tensor": lambda *arguments, **others: given,
        "BrownianTreeNoiseSampler": lambda *arguments, **others: None,
    }
    with patch.dict(names, replaced):
        if hasattr(theirs, "noise_sampler"):
            theirs.noise_sampler = lambda start, end: given
        yield


def steps(theirs, outputs, sample, noise, **settings):
    """For each step what the denoiser takes, and the sample after it, as arrays.

    Sums of small differences between noise levels lose digits in f32; here diffusers adds them in f64.
    """
    torch = pytest.importorskip("torch")
    sample = torch.from_numpy(sample).double()
    for levels in ("sigmas", "alphas_cumprod", "final_alpha_cumprod"):
        if hasattr(theirs, levels):
            setattr(theirs, levels, getattr(theirs, levels).double())
    if hasattr(theirs, "set_begin_index"):
        theirs.set_begin_index(0)  # otherwise a run whose first two timesteps are equal begins with the second
    names = getattr(type(theirs).step, "__wrapped__", type(theirs).step).__globals__
    for index, timestep in enumerate(timesteps_of(theirs)):
        given = torch.from_numpy(noise[index]).double()
        timestep = timestep[None] if type(theirs).__name__ == CONTINUOUS else timestep
        with noise_of(theirs, names, given):
            scaled = theirs.scale_model_input(sample, timestep) if hasattr(theirs, "scale_model_input") else sample
            sample = theirs.step(torch.from_numpy(outputs[index]).double(), timestep, sample, **settings).prev_sample
        yield scaled.numpy(), sample.numpy()
