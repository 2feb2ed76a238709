"""The words and sentences of a text."""
