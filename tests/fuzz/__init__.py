"""The fuzzer of the door: one mutated file, one verb, in a forked child with limits. `make fuzz` runs it."""
