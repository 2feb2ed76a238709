"""The histograms that come with the package."""

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json
from brimful.packing.published import PUBLISHED, read_histogram

SEQUENCES = {"wikipedia-512": 16_279_552, "squad-384": 88_641, "glue-mrpc-128": 4_076, "glue-cola-128": 8_551}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_histogram_has_a_source_and_fits_its_length(name):
    counts = read_histogram(name)
    assert len(counts) <= int(name.rpartition("-")[2]) + 1
    assert counts.sum() == SEQUENCES.get(name, counts.sum()) > 1_000
    assert read_json(PUBLISHED[name])["source"]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(BrimfulError, match=r"squad-512 is neither a file nor one of clue-.*squad-384"):
        read_histogram("squad-512")
