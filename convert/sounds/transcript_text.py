"""Transcripts as text, SubRip (SRT), WebVTT, TSV and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from ...models.pipelines.audio.transcription.segments import Segment, Transcript
from ...runtime.base.printable import without_controls

C1 = re.compile("[\x7f-\x9f]")
"""Control characters that JSON may hold as they are."""


def _clock(seconds: float, mark: str, *, hours: bool) -> str:
    """Hours, minutes, seconds and milliseconds, with `mark` before the last; `hours`: also where they are 0."""
    rest = round(seconds * 1000)
    rest, milliseconds = divmod(rest, 1000)
    rest, second = divmod(rest, 60)
    hour, minute = divmod(rest, 60)
    before = f"{hour:02d}:" if hours or hour else ""
    return f"{before}{minute:02d}:{second:02d}{mark}{milliseconds:03d}"


def _line(segment: Segment) -> str:
    """The words of a segment in one line, without what a terminal would obey: a vocabulary may hold anything."""
    return without_controls(" ".join(line for line in map(str.strip, segment.text.splitlines()) if line))


def _cue(segment: Segment) -> str:
    """The words of a segment, which cannot end a cue or begin another."""
    return _line(segment).replace("-->", "->")


def _subtitle(segment: Segment, mark: str, *, hours: bool) -> str:
    times = (_clock(each, mark, hours=hours) for each in (segment.start, segment.end))
    return f"{' --> '.join(times)}\n{_cue(segment)}\n"


def text(transcript: Transcript) -> str:
    """One line for each segment."""
    return "".join(f"{_line(segment)}\n" for segment in transcript.segments)


def srt(transcript: Transcript) -> str:
    """SubRip."""
    rows = enumerate(transcript.segments, 1)
    return "\n".join(f"{number}\n{_subtitle(segment, ',', hours=True)}" for number, segment in rows)


def vtt(transcript: Transcript) -> str:
    """WebVTT."""
    return "\n".join(["WEBVTT\n", *(_subtitle(segment, ".", hours=False) for segment in transcript.segments)])


def tsv(transcript: Transcript) -> str:
    """Milliseconds and text, separated by tabs."""
    rows = (
        f"{round(1000 * segment.start)}\t{round(1000 * segment.end)}\t{' '.join(_line(segment).split())}\n"
        for segment in transcript.segments
    )
    return "".join(["start\tend\ttext\n", *rows])


def as_json(transcript: Transcript) -> str:
    """The object of `Transcript.to_json`."""
    text = json.dumps(transcript.to_json(), ensure_ascii=False, indent=2) + "\n"
    return C1.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


KINDS: Mapping[str, Callable[[Transcript], str]] = {"txt": text, "srt": srt, "vtt": vtt, "tsv": tsv, "json": as_json}
"""By suffix."""
