"""Every registered accumulator keeps the laws, on every kind of hostile data."""

from __future__ import annotations

import numpy as np
import pytest

from streamdr.accumulators import ACCUMULATORS, Accumulator, Gram, Loadings, Moments, Products, Scores
from streamdr.testing import HOSTILE, check_accumulator, check_bounded, hostile_data

N, D, K = 37, 6, 3
ALONG = {"moments": "rows", "products": "rows", "gram": "columns", "loadings": "columns", "scores": "columns"}


def examples(kind: str) -> list[Accumulator]:
    rng = np.random.default_rng(1)
    tall, wide = rng.normal(size=(D, K)), rng.normal(size=(N, K))
    wide -= wide.mean(axis=0)  # as eigenvectors of centred products are
    return {
        "moments": [Moments(D), Moments(D, double=True)],
        "products": [Products(tall), Products(tall, squares=False), Products(tall, double=True)],
        "gram": [Gram(N), Gram(N, scale=True), Gram(N, double=True)],
        "loadings": [Loadings(wide), Loadings(wide, scale=True)],
        "scores": [Scores(N, rng.normal(size=D), tall)],
    }[kind]


def test_every_accumulator_is_under_the_laws():
    assert ALONG.keys() == ACCUMULATORS.keys()


@pytest.mark.parametrize("data", HOSTILE)
@pytest.mark.parametrize("kind", ACCUMULATORS)
def test_laws(kind, data):
    for empty in examples(kind):
        check_accumulator(empty, hostile_data(data, N, D), axis=ALONG[kind])


@pytest.mark.parametrize("kind", ACCUMULATORS)
def test_laws_with_weights(kind):
    weights = np.random.default_rng(2).integers(0, 4, size=N).astype(float)
    for empty in examples(kind):
        check_accumulator(empty, hostile_data("kind", N, D), axis=ALONG[kind], weights=weights)


@pytest.mark.parametrize("kind", [kind for kind in ACCUMULATORS if kind != "loadings"])
def test_state_is_bounded(kind):
    for empty in examples(kind):
        check_bounded(empty, hostile_data("kind", N, D), axis=ALONG[kind])
