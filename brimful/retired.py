"""Options that were retired, and what to do instead (docs/history.md). A line stays for one release."""

_OPTIONS = {
    "trainer.shard": "every rank holds the whole model; README.md names what else can train a larger one",
    "trainer.on_spike=roll-back": "set it to skip, which gives the same weights",
}


def retired(option: str) -> str | None:
    """What to say of an option that was retired; None if it was not.

    Args:
        option: its key, such as "trainer.on_spike", or its key and value, such as "trainer.on_spike=stop".
    """
    key = option.replace("-", "_") if "=" not in option else option
    return f"{option} was retired: {_OPTIONS[key]}" if key in _OPTIONS else None
