"""Schedulers against diffusers: timesteps, sigmas, and the samples of a run with given model outputs and noise."""

import numpy as np
import pytest
from candle_convert.models import schedulers
from candle_convert.runtime.base.errors import UnsupportedError, UsageError

STABLE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
V = {"prediction_type": "v_prediction"}
CASES = [
    ("DDIMScheduler", STABLE | {"clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1}),
    ("DDIMScheduler", {"timestep_spacing": "linspace"}),
    ("DDIMScheduler", STABLE | V | {"timestep_spacing": "trailing", "rescale_betas_zero_snr": True}),
    ("DDPMScheduler", {"beta_schedule": "squaredcos_cap_v2"}),
    ("DDPMScheduler", {"timestep_spacing": "trailing", "prediction_type": "sample"}),
    ("EulerDiscreteScheduler", STABLE | {"timestep_spacing": "leading", "steps_offset": 1}),
    ("EulerDiscreteScheduler", STABLE | V | {"use_karras_sigmas": True}),
    ("EulerAncestralDiscreteScheduler", STABLE | {"timestep_spacing": "trailing"}),
    ("EulerAncestralDiscreteScheduler", STABLE | V),
    ("PNDMScheduler", STABLE | {"skip_prk_steps": True, "steps_offset": 1}),
    ("PNDMScheduler", STABLE | V | {"skip_prk_steps": True}),
    ("UniPCMultistepScheduler", STABLE),
    ("UniPCMultistepScheduler", STABLE | V | {"use_karras_sigmas": True}),
    ("DPMSolverMultistepScheduler", STABLE | {"timestep_spacing": "trailing"}),
    ("DPMSolverMultistepScheduler", STABLE | V | {"use_karras_sigmas": True}),
    ("LCMScheduler", STABLE),
    ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}),
    ("FlowMatchEulerDiscreteScheduler", {"use_dynamic_shifting": True}),
]


@pytest.mark.parametrize("steps", [2, 5, 20])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_runs_are_those_of_diffusers(monkeypatch, name, options, steps):
    diffusers, torch = pytest.importorskip("diffusers"), pytest.importorskip("torch")
    mu = {"mu": 0.8} if options.get("use_dynamic_shifting") else {}
    theirs = getattr(diffusers, name)(**options)
    theirs.set_timesteps(steps, **mu)
    run = schedulers.load({"_class_name": name, **options}).trajectory(steps, **mu)
    np.testing.assert_allclose(run.timesteps, theirs.timesteps.numpy(), rtol=1e-5, atol=5e-3)
    if run.sigmas is not None:
        np.testing.assert_allclose(run.sigmas, theirs.sigmas.numpy(), rtol=1e-5, atol=1e-6)
    assert run.initial_noise_sigma == pytest.approx(float(getattr(theirs, "init_noise_sigma", 1.0)), rel=1e-5)
    random = np.random.default_rng(steps)
    outputs, noise = random.standard_normal((2, steps + 2, 1, 4, 3, 5)).astype(np.float32)
    sample = random.standard_normal((1, 4, 3, 5)).astype(np.float32)
    expected, history = torch.from_numpy(sample), ()
    for index, timestep in enumerate(theirs.timesteps):
        step = type(theirs).step
        monkeypatch.setitem(
            getattr(step, "__wrapped__", step).__globals__,
            "randn_tensor",
            lambda *arguments, index=index, **others: torch.from_numpy(noise[index]),
        )
        if hasattr(theirs, "scale_model_input"):
            scaled = theirs.scale_model_input(expected, timestep).numpy()
            np.testing.assert_allclose(run.scale_input(sample, index), scaled, rtol=1e-3, atol=1e-3 * abs(scaled).max())
        expected = theirs.step(torch.from_numpy(outputs[index]), timestep, expected).prev_sample
        sample, history = run.step(outputs[index], index, sample, noise[index], history)
        assert sample.dtype == np.float32
        np.testing.assert_allclose(sample, expected.numpy(), atol=1e-4 * abs(expected.numpy()).max())


@pytest.mark.parametrize(
    "config",
    [
        {"_class_name": "NoScheduler"},
        {"_class_name": "LCMScheduler", "color": 1},
        {"_class_name": "DDIMScheduler", "beta_schedule": "cubic"},
        {"_class_name": "PNDMScheduler"},
    ],
)
def test_unknown_configurations_are_refused(config):
    with pytest.raises(UnsupportedError):
        schedulers.load(config)


@pytest.mark.parametrize("steps", [0, -1, 1001, float("nan"), 2.5])
def test_steps_are_whole_and_within_training(steps):
    with pytest.raises(UsageError, match="steps"):
        schedulers.load({"_class_name": "DDIMScheduler"}).trajectory(steps)


def test_samples_that_are_not_finite():
    """All that is left of the first timestep is noise, of which no picture can be computed."""
    options = STABLE | {"timestep_spacing": "trailing", "rescale_betas_zero_snr": True, "clip_sample": False}
    trajectory = schedulers.load({"_class_name": "DDIMScheduler", **options}).trajectory(4)
    sample = np.ones((1, 4, 2, 2), np.float32)
    with pytest.raises(UsageError, match="step 0 gives numbers that are not finite"):
        trajectory.step(sample, 0, sample)
