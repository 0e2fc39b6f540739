"""Schedulers of diffusion: timesteps, sigmas and the step from one sample to the next."""

from .registry import load as load
from .registry import replaced as replaced
from .registry import web_ui_words as web_ui_words
