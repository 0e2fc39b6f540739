"""Signal-to-noise ratio of each type, measured on normally distributed values."""

from __future__ import annotations

SNR_DB = {
    "f32": 151.9,
    "f16": 73.7,
    "bf16": 55.6,
    "f8_e4m3": 31.5,
    "f8_e4m3fnuz": 31.5,
    "f8_e5m2": 25.5,
    "f8_e5m2fnuz": 25.5,
    "f6_e2m3": 28.3,
    "f6_e3m2": 25.5,
    "f4": 16.4,
    "q1_0": 4.4,
    "q2_0": 2.9,
    "q4_0": 21.3,
    "q4_1": 22.1,
    "q5_0": 27.4,
    "q5_1": 28.4,
    "q8_0": 45.4,
    "q8_1": 45.4,
    "q8_k": 43.1,
    "q2_k": 10.5,
    "q3_k": 16.4,
    "q4_k": 22.9,
    "q5_k": 28.8,
    "q6_k": 35.0,
    "iq1_s": 6.2,
    "iq1_m": 6.9,
    "iq2_xxs": 9.3,
    "iq2_xs": 10.4,
    "iq2_s": 12.0,
    "iq3_xxs": 14.8,
    "iq3_s": 15.6,
    "iq4_nl": 22.4,
    "iq4_xs": 22.3,
    "tq1_0": 1.8,
    "tq2_0": 1.8,
    "mxfp4": 18.8,
    "nvfp4": 20.4,
}
"""Signal to noise in decibels on rows of 4,096 float64 numbers with mean 0 and deviation 1; types that llama.cpp only
encodes with an importance matrix get one that is the same for all columns. Trained weights lose about as much where no
column stands out. Every 6 dB halve the error; types that hold such numbers exactly, and those that hold no fractions,
have no figure."""
