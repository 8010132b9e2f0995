"""Every registered method keeps the laws, on every kind of hostile data that has variance enough."""

from __future__ import annotations

import pytest

from streamdr.methods import METHODS, PCA
from streamdr.testing import HOSTILE, check_method, hostile_data

EXAMPLES = {
    "pca": [PCA(3), PCA(0.9), PCA("mle"), PCA(3, scale=True)],
}


def test_every_method_is_under_the_laws():
    assert EXAMPLES.keys() == METHODS.keys()


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind not in ("rank one", "constant column")])
@pytest.mark.parametrize("name", METHODS)
def test_laws(name, kind):
    for method in EXAMPLES[name]:
        check_method(method, hostile_data(kind, 60, 8))


@pytest.mark.parametrize("whiten", ["pca", "zca"])
@pytest.mark.parametrize("kind", ["kind", "float32", "bytes", "big offset"])
def test_laws_of_whitening(whiten, kind):
    check_method(PCA(3, whiten=whiten), hostile_data(kind, 60, 8))
