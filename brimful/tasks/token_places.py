"""Where tokens stand in a text, and which words, spans and windows they belong to."""

import numpy as np
from numpy import ndarray

from brimful.data.examples import Examples
from brimful.data.ragged import Ragged


def trim_spaces(places: ndarray, text: str) -> ndarray:
    """Return the characters of tokens (n, 2) without the white space that some of them have at their ends.

    A token of white space becomes empty. Only the characters from the first token to the last are looked at,
    since a long text is read in windows.
    """
    filled = (places[:, 0] < places[:, 1])[:, None]
    first, end = places.min(initial=len(text), where=filled), places.max(initial=0, where=filled)
    is_space = np.array(list(map(str.isspace, text[first:end])), dtype=bool)
    if not is_space.any():
        return places
    # The places of characters other than white space, and a place before all tokens and one after them.
    letters = np.concatenate([[-1], first + np.flatnonzero(~is_space), [np.iinfo(np.int64).max]])
    starts = np.minimum(letters[np.searchsorted(letters, places[:, 0])], places[:, 1])
    ends = np.maximum(letters[np.searchsorted(letters, places[:, 1]) - 1] + 1, starts)
    return np.where(filled, np.stack([starts, ends], -1), places)


def find_word_units(words: list[tuple[int, int]], places: ndarray) -> tuple[ndarray, ndarray]:
    """Find the taggable units of a text that is divided into words.

    The token with the first character of a word stands for the word. Words that share a token are one unit.
    Words without a token (a zero-width space, say) are left out.

    Args:
        words, places: the characters of each word, and of each token, (tokens, 2), ascending, none empty.

    Returns:
        The characters (units, 2) and the token (units,) of each unit, int64.
    """
    bounds = np.array(words)
    tokens = np.searchsorted(places[:, 1], bounds[:, 0], side="right")  # the first that ends after the start
    has_token = np.append(places[:, 0], np.iinfo(np.int64).max)[tokens] <= bounds[:, 0]
    bounds, tokens = bounds[has_token], tokens[has_token]
    speaking, first = np.unique(tokens, return_index=True)
    last = np.searchsorted(tokens, speaking, side="right") - 1
    return np.stack([bounds[first, 0], bounds[last, 1]], -1), speaking


def merge_windows(outputs: Ragged, examples: Examples) -> tuple[list[ndarray], list[ndarray]]:
    """Return the characters, int32 (tokens, 2), and outputs, float32 (tokens, C), of the tokens of each text,
    without special tokens. A token of several windows has the outputs of the one where it is farthest from a
    cut."""
    assert examples.characters is not None
    ends = np.append(examples.first_of_text[1:], len(examples))
    places, merged = list[ndarray](), list[ndarray]()
    for first, end in zip(examples.first_of_text.tolist(), ends.tolist(), strict=True):
        own_places, own_outputs = list[ndarray](), list[ndarray]()
        positions, distances = list[ndarray](), list[ndarray]()
        start = 0  # of the window, in tokens of the text
        for window in range(first, end):
            is_text = examples.characters[window][:, 0] >= 0
            own_places.append(examples.characters[window][is_text])
            own_outputs.append(outputs[window][is_text])
            size = len(own_places[-1])
            within = np.arange(size)
            before, after = within.astype(np.float64), within[::-1].astype(np.float64)
            if window == first:  # the text begins there: no cut
                before[:] = np.inf
            if window == end - 1:
                after[:] = np.inf
            distances.append(np.minimum(before, after))
            positions.append(start + within)
            start += size - (examples.overlap or 0)
        position = np.concatenate(positions)
        # Sorted by position, and at one position the farthest from a cut first: `unique` takes the first.
        order = np.lexsort((-np.concatenate(distances), position))
        chosen = order[np.unique(position[order], return_index=True)[1]]
        places.append(np.concatenate(own_places)[chosen])
        merged.append(np.concatenate(own_outputs)[chosen])
    return places, merged


def tag_tokens(spans: ndarray, places: ndarray) -> ndarray:
    """Return the tag of each token, int64 (n,), from the last span that it overlaps with.

    Args:
        spans: int64 (m, 3), ascending: the characters of each span, and the tag that continues it.
        places: int (n, 2), the characters of each token, ascending.
    """
    starts, ends, tags = np.concatenate([[(-1, -1, 0)], spans]).T
    span = np.searchsorted(starts, places[:, 1]) - 1  # the last that starts before the token ends
    span[ends[span] <= places[:, 0]] = 0
    begins = (span > 0) & (span != np.append(0, span[:-1]))
    return tags[span] - begins
