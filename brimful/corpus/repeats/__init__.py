"""Repetitions across a corpus."""
