"""Kinds of characters for cutting a text into fragments.

The tokens of a character never depend on a neighbour from which the matrix allows a cut.
"""

import numpy as np

# No cut stands beside UNSURE. After SOLID, only a space is cut off. UNASKED: not known yet.
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
