"""Benches, one folder a question: `python -m bench.step --help`. bench/README.md lists them."""
