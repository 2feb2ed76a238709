"""Texts with some words replaced: TinyBERT's augmentation (Jiao et al. 2020, section 3.3 and algorithm 1)."""
