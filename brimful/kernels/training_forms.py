"""All fast forms, with those that only training has. Import this module where a model is made or trained."""

import brimful.kernels.forms  # noqa: F401  (fast forms register themselves)
from brimful.kernels import linear_cross_entropy
from brimful.model.door import FastForm, register

register(
    "linear_cross_entropy",
    FastForm(linear_cross_entropy.sum_and_hits, linear_cross_entropy.applies),
)
