"""Schedulers against diffusers: timesteps, sigmas, and the samples of a run with given model outputs and noise."""

import inspect

import numpy as np
import pytest
from candle_convert.models import schedulers
from candle_convert.models.schedulers.registry import rules
from candle_convert.runtime.base.errors import UsageError
from candle_convert.tests.oracles import diffusers_schedulers

STABLE = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
V, ORIGINAL = {"prediction_type": "v_prediction"}, {"prediction_type": "sample"}
KARRAS = {"use_karras_sigmas": True}
EXPONENTIAL, BETA = {"use_exponential_sigmas": True}, {"use_beta_sigmas": True}
LEADING, TRAILING = {"timestep_spacing": "leading", "steps_offset": 1}, {"timestep_spacing": "trailing"}
ZERO_SNR, LEAST = {"rescale_betas_zero_snr": True}, {"final_sigmas_type": "sigma_min"}
COSINE = {"beta_schedule": "squaredcos_cap_v2"}
THRESHOLD = {"thresholding": True, "sample_max_value": 1.5, "dynamic_thresholding_ratio": 0.9}
VIDEO = V | KARRAS | {"timestep_type": "continuous", "sigma_min": 0.002, "sigma_max": 700.0}
MULTISTEP, SINGLESTEP = "DPMSolverMultistepScheduler", "DPMSolverSinglestepScheduler"
EULER, ANCESTRAL = "EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler"
SDE, HEUN, LMS = "DPMSolverSDEScheduler", "HeunDiscreteScheduler", "LMSDiscreteScheduler"
UNIPC, FLOW = "UniPCMultistepScheduler", "FlowMatchEulerDiscreteScheduler"
ALGORITHMS = ("dpmsolver++", "sde-dpmsolver++", "dpmsolver", "sde-dpmsolver")
CASES = [
    ("DDIMScheduler", STABLE | LEADING | {"clip_sample": False, "set_alpha_to_one": False}),
    ("DDIMScheduler", {"timestep_spacing": "linspace", "clip_sample_range": 0.5}),
    ("DDIMScheduler", STABLE | V | TRAILING | ZERO_SNR),
    ("DDIMScheduler", STABLE | THRESHOLD),
    ("DDIMScheduler", {"trained_betas": np.linspace(1e-4, 0.03, 1000).tolist(), "clip_sample": False}),
    ("DDPMScheduler", COSINE),
    ("DDPMScheduler", TRAILING | ORIGINAL),
    ("DDPMScheduler", THRESHOLD | {"beta_schedule": "sigmoid", "variance_type": "fixed_large"}),
    ("DDPMScheduler", V | ZERO_SNR | {"variance_type": "fixed_small_log"}),
    ("DDPMScheduler", COSINE | {"variance_type": "learned_range"}),
    ("DDPMScheduler", {"variance_type": "learned"}),
    (EULER, STABLE | LEADING),
    (EULER, STABLE | V | KARRAS),
    (EULER, STABLE | EXPONENTIAL | LEAST),
    (EULER, STABLE | BETA | TRAILING),
    (EULER, STABLE | V | ZERO_SNR | TRAILING),
    (EULER, STABLE | VIDEO),
    (EULER, STABLE | ORIGINAL),
    (ANCESTRAL, STABLE | TRAILING),
    (ANCESTRAL, STABLE | V),
    (ANCESTRAL, STABLE | V | ZERO_SNR | TRAILING),
    ("PNDMScheduler", STABLE | {"skip_prk_steps": True, "steps_offset": 1}),
    ("PNDMScheduler", STABLE | V | {"skip_prk_steps": True, "set_alpha_to_one": True}),
    ("PNDMScheduler", STABLE | V | TRAILING | {"skip_prk_steps": True}),
    (UNIPC, STABLE),
    (UNIPC, STABLE | V | KARRAS),
    (UNIPC, STABLE | EXPONENTIAL | LEAST),
    (UNIPC, STABLE | BETA | THRESHOLD),
    (UNIPC, COSINE | KARRAS),
    (UNIPC, STABLE | {"lower_order_final": False, "solver_order": 1}),
    *(
        (UNIPC, STABLE | V | LEAST | {"solver_order": order, "solver_type": kind})
        for order in (1, 2, 3)
        for kind in ("bh1", "bh2")
    ),
    (UNIPC, STABLE | {"solver_order": 3}),
    (UNIPC, STABLE | V | ZERO_SNR | TRAILING),
    (MULTISTEP, STABLE | TRAILING),
    (MULTISTEP, STABLE | V | KARRAS),
    (MULTISTEP, STABLE | {"use_lu_lambdas": True, "solver_type": "heun", "euler_at_final": True}),
    (MULTISTEP, STABLE | EXPONENTIAL),
    (MULTISTEP, STABLE | BETA),
    (MULTISTEP, STABLE | LEADING | V | ZERO_SNR),
    (MULTISTEP, COSINE | THRESHOLD | {"lambda_min_clipped": -5.1}),
    (MULTISTEP, COSINE | KARRAS | {"algorithm_type": "sde-dpmsolver++"}),
    *(
        (MULTISTEP, STABLE | LEAST | V | {"algorithm_type": algorithm, "solver_order": order, "solver_type": kind})
        for algorithm in ALGORITHMS
        for order, kind in ((1, "midpoint"), (2, "midpoint"), (2, "heun"), (3, "midpoint"))
        if (algorithm, order) != ("sde-dpmsolver", 3)
    ),
    *(
        (SINGLESTEP, STABLE | final | {"algorithm_type": algorithm, "solver_order": order, "solver_type": kind})
        for algorithm in ALGORITHMS[:3]
        for order, kind in ((1, "midpoint"), (2, "midpoint"), (2, "heun"), (3, "midpoint"), (3, "heun"))
        for final in ({}, LEAST)
        if algorithm != "dpmsolver" or final
    ),
    (SINGLESTEP, STABLE | V | KARRAS | THRESHOLD),
    (SINGLESTEP, COSINE | ORIGINAL | {"lambda_min_clipped": -5.1}),
    (SDE, STABLE),
    (SDE, STABLE | V | KARRAS | TRAILING),
    (SDE, STABLE | LEADING | EXPONENTIAL),
    (HEUN, STABLE),
    (HEUN, STABLE | V | KARRAS | LEADING),
    (HEUN, {"beta_schedule": "exp", "clip_sample": True, **BETA}),
    (HEUN, STABLE | ORIGINAL | TRAILING),
    (LMS, STABLE),
    (LMS, STABLE | V | KARRAS | TRAILING),
    (LMS, STABLE | LEADING | ORIGINAL | EXPONENTIAL),
    ("LCMScheduler", STABLE),
    ("LCMScheduler", STABLE | V | {"thresholding": True}),
    (FLOW, {"shift": 3.0}),
    (FLOW, {"use_dynamic_shifting": True}),
    (FLOW, {"use_dynamic_shifting": True, "time_shift_type": "linear", **KARRAS}),
    (FLOW, {"shift": 3.0, "stochastic_sampling": True, **EXPONENTIAL}),
    (FLOW, {"shift": 2.0, "invert_sigmas": True, **BETA}),
    ("DDPMWuerstchenScheduler", {}),
    ("DDPMWuerstchenScheduler", {"scaler": 2.0}),
    ("DDPMWuerstchenScheduler", {"scaler": 0.5, "s": 0.02}),
]
OTHER_STEPS = [
    ("PNDMScheduler", STABLE, 4),
    ("PNDMScheduler", STABLE | V | TRAILING, 5),
    ("PNDMScheduler", STABLE | {"timestep_spacing": "linspace"}, 50),
    (MULTISTEP, STABLE, 14),
    (MULTISTEP, STABLE | {"solver_order": 3}, 15),
    (SINGLESTEP, STABLE | {"solver_order": 3}, 3),
    (SINGLESTEP, STABLE | LEAST | {"solver_order": 3}, 9),
    (FLOW, {"use_dynamic_shifting": True, "shift_terminal": 0.02}, 8),
]


def compare(name, options, steps, seed=0, **settings):
    """Compare every step of a run with diffusers'."""
    mu = {"mu": 0.8} if options.get("use_dynamic_shifting") else {}
    theirs = diffusers_schedulers.scheduler(name, options)
    theirs.set_timesteps(steps, **mu)
    run = schedulers.load({"_class_name": name, **options}).trajectory(steps, **mu, **settings)
    expected = diffusers_schedulers.timesteps_of(theirs).numpy()
    np.testing.assert_allclose(run.timesteps, expected, rtol=1e-5, atol=5e-3)
    if run.sigmas is not None:
        np.testing.assert_allclose(run.sigmas, theirs.sigmas.numpy(), rtol=2e-5, atol=1e-6)
    assert run.initial_noise_sigma == pytest.approx(float(getattr(theirs, "init_noise_sigma", 1.0)), rel=2e-5)
    random = np.random.default_rng([seed, steps])
    outputs, noise = random.standard_normal((2, len(expected), 1, 4, 3, 5)).astype(np.float32)
    if options.get("variance_type", "").startswith("learned"):
        outputs = np.concatenate([outputs, random.uniform(0, 1, outputs.shape).astype(np.float32)], axis=2)
    sample, history = random.standard_normal((1, 4, 3, 5)).astype(np.float32), ()
    for index, (scaled, following) in enumerate(diffusers_schedulers.steps(theirs, outputs, sample, noise, **settings)):
        np.testing.assert_allclose(run.scale_input(sample, index), scaled, rtol=1e-3, atol=1e-3 * abs(scaled).max())
        sample, history = run.step(outputs[index], index, sample, noise[index], history)
        assert sample.dtype == np.float32
        np.testing.assert_allclose(sample, following, atol=1e-4 * abs(following).max())


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 50])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_runs_are_those_of_diffusers(name, options, steps):
    compare(name, options, steps)


@pytest.mark.parametrize(("name", "options", "steps"), OTHER_STEPS)
def test_runs_of_other_lengths(name, options, steps):
    compare(name, options, steps)


@pytest.mark.parametrize("name", ["DDIMScheduler", EULER, UNIPC])
@pytest.mark.parametrize("steps", [61, 103, 999, 1000])
def test_trailing_timesteps_are_as_many_as_steps(name, steps):
    """Rounding gives diffusers one more for some numbers of steps, at the timestep -1."""
    timesteps = schedulers.load({"_class_name": name, **TRAILING}).trajectory(steps).timesteps
    assert len(timesteps) == steps
    assert timesteps[-1] >= 0


@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize("steps", [1, 5, 50])
def test_eta(eta, steps):
    compare("DDIMScheduler", STABLE | LEADING | {"clip_sample": False}, steps, eta=eta)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", sorted(rules()))
def test_defaults_are_those_of_diffusers(name, seed):
    options = {"use_dynamic_shifting": True} if "Flow" in name else {}
    compare(name, options, 7, seed)
    parameters = inspect.signature(type(diffusers_schedulers.scheduler(name, {})).__init__).parameters
    stated = schedulers.load({"_class_name": name}).options
    differ = {
        key: (value, parameters[key].default)
        for key, value in stated.items()
        if key in parameters and value != parameters[key].default and (value or parameters[key].default)
    }
    assert not differ


PUBLISHED = {
    "Stable Diffusion 1.5": {
        "_class_name": "PNDMScheduler",
        "_diffusers_version": "0.6.0",
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "beta_start": 0.00085,
        "num_train_timesteps": 1000,
        "set_alpha_to_one": False,
        "skip_prk_steps": True,
        "steps_offset": 1,
        "trained_betas": None,
        "clip_sample": False,
    },
    "Stable Diffusion XL": {
        "_class_name": "EulerDiscreteScheduler",
        "_diffusers_version": "0.19.0.dev0",
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "beta_start": 0.00085,
        "clip_sample": False,
        "interpolation_type": "linear",
        "num_train_timesteps": 1000,
        "prediction_type": "epsilon",
        "sample_max_value": 1.0,
        "set_alpha_to_one": False,
        "skip_prk_steps": True,
        "steps_offset": 1,
        "timestep_spacing": "leading",
        "trained_betas": None,
        "use_karras_sigmas": False,
    },
    "Wuerstchen": {
        "_class_name": "DDPMWuerstchenScheduler",
        "_diffusers_version": "0.21.0.dev0",
        "s": 0.008,
        "scaler": 1.0,
    },
}


@pytest.mark.parametrize("config", PUBLISHED.values(), ids=PUBLISHED)
def test_published_configurations(config):
    name = config["_class_name"]
    known = inspect.signature(type(diffusers_schedulers.scheduler(name, {})).__init__).parameters
    compare(name, {key: value for key, value in config.items() if key in known}, 20)
    schedulers.load(config).trajectory(20)


BEGUN = [
    ("DDIMScheduler", STABLE | {"clip_sample": False}),
    ("DDPMScheduler", STABLE | {"clip_sample": False}),
    ("PNDMScheduler", STABLE | {"skip_prk_steps": True}),
    (EULER, STABLE),
    (EULER, STABLE | KARRAS | LEADING),
    ("EulerAncestralDiscreteScheduler", STABLE),
    (UNIPC, STABLE),
    (MULTISTEP, STABLE | KARRAS),
    (HEUN, STABLE),
    (SDE, STABLE),
    (FLOW, {"shift": 3.0}),
]
"""Schedulers that begin with a picture. LMS of diffusers then weighs slopes that it does not have."""


@pytest.mark.parametrize(("name", "options"), BEGUN)
@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_runs_that_begin_with_a_sample(name, options, skipped):
    torch = pytest.importorskip("torch")
    theirs = diffusers_schedulers.scheduler(name, options)
    theirs.set_timesteps(6)
    begin = skipped * theirs.order
    random = np.random.default_rng(skipped)
    original, *noise = random.standard_normal((40, 1, 4, 3, 5)).astype(np.float32)
    run = schedulers.load({"_class_name": name, **options}).trajectory(6)
    assert run.order == theirs.order
    sample = run.noised(original, noise[0], begin)
    theirs.set_begin_index(begin) if hasattr(theirs, "set_begin_index") else None
    add = theirs.scale_noise if name == FLOW else theirs.add_noise
    given = [torch.from_numpy(original), torch.from_numpy(noise[0])]
    times = theirs.timesteps[begin : begin + 1]
    expected = add(given[0], times, given[1]) if name == FLOW else add(*given, times)
    np.testing.assert_allclose(sample, expected.numpy(), rtol=1e-4, atol=1e-4 * abs(sample).max())
    theirs.timesteps = theirs.timesteps[begin:] if name == "PNDMScheduler" else theirs.timesteps
    rest, history = run.after(begin), ()
    outputs = noise[1 : len(rest.timesteps) + 1]
    found = []
    for index in range(len(rest.timesteps)):
        sample, history = rest.step(outputs[index], index, sample, noise[20 + index], history)
        found.append(sample)
    names = getattr(type(theirs).step, "__wrapped__", type(theirs).step).__globals__
    expected = expected.double()
    for levels in ("sigmas", "alphas_cumprod", "final_alpha_cumprod"):
        if hasattr(theirs, levels):
            setattr(theirs, levels, getattr(theirs, levels).double())
    times = theirs.timesteps if name == "PNDMScheduler" else theirs.timesteps[begin:]
    for index, timestep in enumerate(times):
        drawn = torch.from_numpy(noise[20 + index]).double()
        with diffusers_schedulers.noise_of(theirs, names, drawn):
            step = theirs.step(torch.from_numpy(outputs[index]).double(), timestep, expected)
        expected = step.prev_sample
        np.testing.assert_allclose(found[index], expected.numpy(), atol=1e-4 * abs(expected).max())


@pytest.mark.parametrize("name", [SINGLESTEP, "DDPMWuerstchenScheduler"])
def test_other_schedulers_begin_with_noise(name):
    run = schedulers.load({"_class_name": name}).trajectory(4)
    with pytest.raises(UsageError, match="begins with noise alone"):
        run.noised(np.zeros((1, 4, 2, 2), np.float32), np.zeros((1, 4, 2, 2), np.float32), 1)
