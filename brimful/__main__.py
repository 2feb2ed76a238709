"""`python -m brimful`, for torchrun."""

from brimful.cli.main import entry

entry()
