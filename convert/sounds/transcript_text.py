"""Transcripts as text, SubRip (SRT), WebVTT, TSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from ...models.pipelines.audio.transcription.segments import Segment, Transcript


def _clock(seconds: float, mark: str, *, hours: bool) -> str:
    """Hours, minutes, seconds and milliseconds, with `mark` before the last; `hours`: also where they are 0."""
    rest = round(seconds * 1000)
    rest, milliseconds = divmod(rest, 1000)
    rest, second = divmod(rest, 60)
    hour, minute = divmod(rest, 60)
    before = f"{hour:02d}:" if hours or hour else ""
    return f"{before}{minute:02d}:{second:02d}{mark}{milliseconds:03d}"


def _subtitle(segment: Segment, mark: str, *, hours: bool) -> str:
    times = (_clock(each, mark, hours=hours) for each in (segment.start, segment.end))
    return f"{' --> '.join(times)}\n{segment.text.strip().replace('-->', '->')}\n"


def text(transcript: Transcript) -> str:
    """One line for each segment."""
    return "".join(f"{segment.text.strip()}\n" for segment in transcript.segments)


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
        f"{round(1000 * segment.start)}\t{round(1000 * segment.end)}\t{' '.join(segment.text.split())}\n"
        for segment in transcript.segments
    )
    return "".join(["start\tend\ttext\n", *rows])


def as_json(transcript: Transcript) -> str:
    """The object of `Transcript.to_json`."""
    return json.dumps(transcript.to_json(), ensure_ascii=False, indent=2) + "\n"


KINDS: Mapping[str, Callable[[Transcript], str]] = {"txt": text, "srt": srt, "vtt": vtt, "tsv": tsv, "json": as_json}
"""By suffix."""
