"""`python -m brimful`, for torchrun."""

from brimful.cli import entry

entry()
