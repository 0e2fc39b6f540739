"""Names of schedulers: modules, classes, and the web UI's samplers as diffusers' documentation maps them."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.models import schedulers
from candle_convert.tests.oracles.diffusers_schedulers import scheduler

BASE = {
    "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "timestep_spacing": "leading",
}  # fmt: skip
KARRAS = {"use_karras_sigmas": True}
SAMPLERS = {
    "Euler": ("EulerDiscreteScheduler", {}),
    "Euler a": ("EulerAncestralDiscreteScheduler", {}),
    "LMS Karras": ("LMSDiscreteScheduler", KARRAS),
    "DPM++ 2M": ("DPMSolverMultistepScheduler", {}),
    "DPM++ 2M Karras": ("DPMSolverMultistepScheduler", KARRAS),
    "DPM++ 2M SDE": ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    "DPM++ 2M SDE Karras": ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++", **KARRAS}),
    "Heun Exponential": ("HeunDiscreteScheduler", {"use_exponential_sigmas": True}),
    "Euler Uniform": ("EulerDiscreteScheduler", {"timestep_spacing": "linspace"}),
    "PLMS": ("PNDMScheduler", {"skip_prk_steps": True}),
}


@pytest.mark.parametrize("words", SAMPLERS)
def test_samplers_of_the_web_ui(words):
    kind, options = SAMPLERS[words]
    theirs = scheduler(kind, {**BASE, **options})
    theirs.set_timesteps(7)
    own = schedulers.load({"_class_name": "DDIMScheduler", **BASE})
    ours = schedulers.replaced(own, words.lower())
    assert ours.rule.name == kind
    assert {name: theirs.config[name] for name in options} == {name: ours.options[name] for name in options}
    if kind != "PNDMScheduler":
        np.testing.assert_allclose(ours.trajectory(7).sigmas, theirs.sigmas.numpy(), rtol=1e-6)
    assert " ".join(schedulers.web_ui_words(ours)).strip() == words
    assert schedulers.replaced(own, kind).rule.name == kind


@pytest.mark.parametrize("words", ["Euler", "LMS", "Heun", "UniPC", "DPM++ 2M"])
def test_the_web_ui_states_the_schedule_type(words):
    own = schedulers.load({"_class_name": "EulerDiscreteScheduler", **BASE, **KARRAS})
    assert not schedulers.replaced(own, words).options["use_karras_sigmas"]
    assert schedulers.replaced(own, f"{words} Karras").options["use_karras_sigmas"]
    assert schedulers.replaced(own, "euler").options["use_karras_sigmas"]


def test_flow_matching_keeps_its_euler():
    own = schedulers.load({"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0})
    assert schedulers.web_ui_words(own) == ("Euler", "")
    assert schedulers.replaced(own, "Euler").options == own.options


@pytest.mark.parametrize(
    ("name", "why"), [("DDIM Karras", "has no use_karras_sigmas"), ("Euler b", "unknown scheduler")]
)
def test_refusals(name, why):
    with pytest.raises(cc.Error, match=why):
        schedulers.replaced(schedulers.load({"_class_name": "DDIMScheduler", **BASE}), name)
