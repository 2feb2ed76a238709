"""Kinds of characters, as the cutting of a text into segments sees them.

What a character of one kind becomes never depends on a neighbour from which the matrix lets it be cut.
"""

import numpy as np

# No cut is beside UNSURE. After SOLID, only a space is cut off. UNASKED: not known yet.
UNASKED, UNSURE, SEPARATOR, SPACE, SOLID, ALONE, WORD, NUMBER, SYMBOL, HAN, PLAIN_HAN = range(11)


def matrix_of_cuts() -> np.ndarray:
    """May a text be cut between a character of kind i and one of kind j after it? bool (kinds, kinds)."""
    cuts = np.zeros((PLAIN_HAN + 1, PLAIN_HAN + 1), bool)
    cuts[ALONE:, ALONE:] = True
    for kind in (WORD, NUMBER, SYMBOL, HAN, PLAIN_HAN):
        cuts[kind, kind] = False
    cuts[HAN, PLAIN_HAN] = cuts[PLAIN_HAN, HAN] = False
    cuts[SOLID:, SPACE] = True
    cuts[SEPARATOR] = cuts[:, SEPARATOR] = True
    return cuts
