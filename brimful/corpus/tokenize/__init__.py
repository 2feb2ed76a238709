"""Tokenizers: training, loading, and encoding with them, exactly and fast."""
