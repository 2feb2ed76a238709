"""Duplicates across a corpus."""
