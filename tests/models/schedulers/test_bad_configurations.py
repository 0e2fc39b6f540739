"""Schedulers with options that they lack, numbers out of range, and steps that lead nowhere."""

import numpy as np
import pytest
from candle_convert.models import schedulers
from candle_convert.runtime.base.errors import FormatError, UnsupportedError, UsageError

STABLE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}


@pytest.mark.parametrize(
    "config",
    [
        {"_class_name": "NoScheduler"},
        {"_class_name": ["DDIMScheduler"]},
        {},
        {"_class_name": "LCMScheduler", "color": 1},
        {"_class_name": "DDIMScheduler", "eta": 1.0},
        {"_class_name": "DDIMScheduler", "beta_schedule": "cubic"},
        {"_class_name": "DDIMScheduler", "beta_schedule": ["linear"]},
        {"_class_name": "DDIMScheduler", "prediction_type": True},
        {"_class_name": "PNDMScheduler", "prediction_type": "sample"},
        {"_class_name": "DDPMScheduler", "variance_type": "fixed_large_log"},
        {"_class_name": "DPMSolverMultistepScheduler", "use_flow_sigmas": True},
        {"_class_name": "DPMSolverMultistepScheduler", "solver_order": True},
    ],
)
def test_unknown_options_are_refused(config):
    with pytest.raises(UnsupportedError):
        schedulers.load(config)


@pytest.mark.parametrize(
    "option",
    [
        {"num_train_timesteps": 10**9},
        {"num_train_timesteps": 0},
        {"num_train_timesteps": "1000"},
        {"num_train_timesteps": None},
        {"beta_start": float("nan")},
        {"beta_end": float("inf")},
        {"beta_end": 2},
        {"beta_start": -0.1},
        {"trained_betas": [0.1, float("nan")]},
        {"trained_betas": 0.1},
        {"steps_offset": -1},
        {"clip_sample_range": 0},
        {"clip_sample": "yes"},
        {"dynamic_thresholding_ratio": 1.5},
        {"sample_max_value": 0.5},
        {"set_alpha_to_one": 2},
    ],
)
def test_options_out_of_range_are_refused(option):
    with pytest.raises(FormatError, match=next(iter(option))):
        schedulers.load({"_class_name": "DDIMScheduler", **option})


@pytest.mark.parametrize("least", [float("nan"), float("inf"), "low"])
def test_clipped_ratios_are_numbers(least):
    with pytest.raises(FormatError, match="lambda_min_clipped"):
        schedulers.load({"_class_name": "DPMSolverMultistepScheduler", "lambda_min_clipped": least})


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"_class_name": "EulerDiscreteScheduler", "beta_end": 1.0}, "not finite"),
        ({"_class_name": "EulerDiscreteScheduler", "beta_start": 0.0}, "are 0"),
        ({"_class_name": "DDIMScheduler", "trained_betas": [0.1]}, "trained_betas"),
        ({"_class_name": "DDIMScheduler", "steps_offset": 900}, "steps_offset"),
        (
            {"_class_name": "EulerDiscreteScheduler", "use_karras_sigmas": True, "use_beta_sigmas": True},
            "exclude each other",
        ),
        ({"_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "dpmsolver"}, "final_sigmas_type"),
        ({"_class_name": "DPMSolverMultistepScheduler", "lambda_min_clipped": 100.0}, "lambda_min_clipped"),
    ],
)
def test_schedules_that_cannot_be_computed(config, why):
    with pytest.raises(UnsupportedError, match=why):
        schedulers.load(config).trajectory(5)


@pytest.mark.parametrize("steps", [0, -1, 1001, 10**9, float("nan"), 2.5, True, None])
def test_steps_are_whole_and_within_training(steps):
    with pytest.raises(UsageError, match="steps"):
        schedulers.load({"_class_name": "DDIMScheduler"}).trajectory(steps)


def test_steps_of_continuous_timesteps_have_a_limit():
    with pytest.raises(UsageError, match="steps"):
        schedulers.load({"_class_name": "DDPMWuerstchenScheduler"}).trajectory(10**9)


@pytest.mark.parametrize("eta", [-0.1, 1.1, float("nan"), "1"])
def test_eta_is_a_part_of_noise(eta):
    with pytest.raises(UsageError, match="setting"):
        schedulers.load({"_class_name": "DDIMScheduler"}).trajectory(5, eta=eta)


def test_settings_of_other_schedulers_are_refused():
    with pytest.raises(UsageError, match="no setting eta"):
        schedulers.load({"_class_name": "DDPMScheduler"}).trajectory(5, eta=0.5)


@pytest.mark.parametrize("mu", [None, float("nan"), float("inf"), 1e6, "0.8"])
def test_mu_is_a_number(mu):
    scheduler = schedulers.load({"_class_name": "FlowMatchEulerDiscreteScheduler", "use_dynamic_shifting": True})
    with pytest.raises(UsageError, match="mu"):
        scheduler.trajectory(5, mu=mu)


def test_runge_kutta_needs_four_steps():
    with pytest.raises(UsageError, match="Runge-Kutta"):
        schedulers.load({"_class_name": "PNDMScheduler"}).trajectory(3)


def test_learned_variances_have_channels():
    sample = np.ones((1, 4, 2, 2), np.float32)
    trajectory = schedulers.load({"_class_name": "DDPMScheduler", "variance_type": "learned"}).trajectory(4)
    with pytest.raises(UsageError, match="8 channels, not 4"):
        trajectory.step(sample, 0, sample, sample)


def test_noise_is_given():
    trajectory = schedulers.load({"_class_name": "DPMSolverSDEScheduler"}).trajectory(4)
    sample = np.ones((1, 4, 2, 2), np.float32)
    with pytest.raises(UsageError, match="noise"):
        trajectory.step(sample, 0, sample)


@pytest.mark.parametrize(
    "config",
    [
        {"_class_name": "HeunDiscreteScheduler"},
        {"_class_name": "DPMSolverSDEScheduler"},
        {"_class_name": "DPMSolverSinglestepScheduler"},
        {"_class_name": "PNDMScheduler", "skip_prk_steps": True},
        {"_class_name": "PNDMScheduler"},
    ],
)
def test_history_is_passed_on(config):
    sample = np.ones((1, 4, 2, 2), np.float32)
    with pytest.raises(UsageError, match="history"):
        schedulers.load(config).trajectory(4).step(sample, 1, sample, sample)


def test_samples_that_are_not_finite():
    """All that is left of the first timestep is noise, of which no picture can be computed."""
    options = STABLE | {"timestep_spacing": "trailing", "rescale_betas_zero_snr": True, "clip_sample": False}
    trajectory = schedulers.load({"_class_name": "DDIMScheduler", **options}).trajectory(4)
    sample = np.ones((1, 4, 2, 2), np.float32)
    with pytest.raises(UsageError, match="step 0 gives numbers that are not finite"):
        trajectory.step(sample, 0, sample)


@pytest.mark.parametrize(("dtype", "size"), [(np.float16, 6e4), (np.float32, 3e38)])
def test_samples_that_their_dtype_cannot_hold(dtype, size):
    """The step is computed in wider numbers than the sample has."""
    trajectory = schedulers.load({"_class_name": "EulerDiscreteScheduler", **STABLE}).trajectory(2)
    sample = np.full((1, 4, 2, 2), size, dtype)
    with pytest.raises(UsageError, match="step 0 gives numbers that are not finite"):
        trajectory.step(-sample, 0, sample)
