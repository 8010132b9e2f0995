"""Values whose products overflow are refused by every method with a message, and without warnings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from command_line import streamdr as command
from command_line import write_config, write_store
from fits import suited

import streamdr
from streamdr.errors import DataError
from streamdr.estimators import ESTIMATORS
from streamdr.methods import METHODS

ROWS = np.random.default_rng(0).normal(size=(60, 5))
LABELS = np.arange(60) % 3
NAMES = [name for name in streamdr.__all__ if isinstance(getattr(streamdr, name), type)]
STEPS = {kind.__name__: METHODS[name] for name, kind in ESTIMATORS.items() if METHODS[name].tags.step}
SUMS = [name for name in NAMES if name not in STEPS or name in ("Standardise", "SelectVariance")]
"""The other steps take no products."""
ORDER_ONLY = ("SelectMutualInfo",)  # these use the order of the values only
MAPS = ("transform", "predict_proba", "score_samples", "impute", "denoise")


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def estimator(name):
    if name == "Chain":
        return streamdr.Chain([streamdr.Standardise(), streamdr.PCA(2)])
    return getattr(streamdr, name)() if name == "LDA" or name in STEPS else getattr(streamdr, name)(2)


def rows_for(name):
    return suited(STEPS[name](), ROWS) if name in STEPS else ROWS


@pytest.mark.parametrize("scale", [1e160, 1e300])
@pytest.mark.parametrize("name", SUMS)
def test_products_that_overflow_are_refused(name, scale):
    if name in ORDER_ONLY:
        plain = estimator(name).fit(ROWS, LABELS).scores_
        np.testing.assert_array_equal(estimator(name).fit(ROWS * scale, LABELS).scores_, plain)
    else:
        with pytest.raises(DataError, match="overflow"):
            estimator(name).fit(ROWS * scale, LABELS)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_the_row_of_an_infinite_value_is_named(name, bad):
    rows = rows_for(name).copy()
    rows[7, 2] = bad
    with pytest.raises(DataError, match="row 7"):
        estimator(name).fit(rows, LABELS)


@pytest.mark.parametrize("name", NAMES)
def test_mapped_rows_are_finite_or_refused(name):
    rows = rows_for(name)
    fitted = estimator(name).fit(rows, LABELS)
    for map_rows in (getattr(fitted, kind) for kind in MAPS if hasattr(fitted, kind)):
        try:
            mapped = map_rows(rows * 1e300)
        except DataError:
            with pytest.raises(DataError, match=r"overflow|is not between 0 and 2"):
                map_rows(rows * 1e300)
        else:
            assert np.isfinite(mapped).all()


def test_an_embedding_that_overflows_its_type_is_refused(tmp_path):
    write_store(tmp_path / "x.zarr", ROWS * 1e60)
    config = write_config(
        tmp_path, input={"path": "x.zarr"}, output={"embedding": "e.zarr", "dtype": "float32"}
    )
    outcome = command("run", config, cwd=tmp_path)
    assert outcome.code == 1
    assert "the embedding of rows 0-" in outcome.err
    assert "overflows float32" in outcome.err
    assert not (tmp_path / "e.zarr").exists()
