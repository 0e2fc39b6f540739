"""Transcripts hold words alone, whatever a model's vocabulary holds: no orders to terminals, no cues of their own."""

import json
import re
import unicodedata

import pytest
from candle_convert.convert.sounds.transcript_text import KINDS
from candle_convert.models.pipelines.audio.transcription.segments import Segment, Transcript

HOSTILE = " \x1b[2J\x1b]8;;http://x\x07a\x9b31m\x7f\r\b\n\n7\n00:00:00,000 --> 00:00:09,000\nforged\u2028x "
SPOKEN = "שלום\u200f עולם, \U0001f44d\ufe0f naïve"


def transcript(*texts):
    return Transcript(
        [Segment(float(i), i + 1.0, text, [], 0.0, -0.5, 1.0, 0.0) for i, text in enumerate(texts)], "en", 3.0
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_control_character_gets_out(kind):
    made = KINDS[kind](transcript(HOSTILE, SPOKEN))
    assert {c for c in made if unicodedata.category(c) == "Cc"} <= {"\n", "\t"}
    assert SPOKEN in made


@pytest.mark.parametrize(("kind", "arrow"), [("srt", 2), ("vtt", 2)])
def test_no_text_begins_a_cue(kind, arrow):
    made = KINDS[kind](transcript(HOSTILE, "second"))
    assert made.count("-->") == arrow
    assert len(re.split(r"\n\n", made.strip())) == 2 + (kind == "vtt")


def test_json_is_the_same_text():
    assert json.loads(KINDS["json"](transcript(HOSTILE)))["segments"][0]["text"] == HOSTILE
