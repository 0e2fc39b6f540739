"""Transcription of long audio: windows, tokens and their rules, segments, words."""
