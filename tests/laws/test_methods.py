"""Every registered method obeys the laws, on every kind of hostile data with enough variance."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from fits import suited
from narrowing import checked
from scipy.spatial.distance import cdist

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import Method, Supervised, in_memory
from streamdr.methods import METHODS, mds
from streamdr.methods.lda import LDA
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.ppca.model import PPCAModel
from streamdr.testing import HOSTILE, MISSING, check_method, check_passes, hostile_data

LITTLE_NOISE = ("drifting", "uneven scales", "rank one")
"""Data whose largest variance is more than a million times that of the noise."""


LABELS = np.random.default_rng(3).integers(0, 3, size=60)


TEXT = np.array(["b", "a", "cd"])[LABELS]
NUMBERS = LABELS + np.random.default_rng(4).normal(size=60)
TARGETS = {"classes": [LABELS, TEXT], "numbers": [NUMBERS], "any": [LABELS, TEXT, NUMBERS]}
"""The labels for supervised methods, by the kind of target of the method."""


def targets(method: Method) -> list[Any]:
    """The labels for an example of a method. Some learners need a numeric target."""
    if not isinstance(method, Supervised):
        return [None]
    numbers_only = getattr(method, "learner", "") in ("linear", "ridge")
    return [labels for labels in TARGETS[method.target] if not (numbers_only and labels is TEXT)]


def rows_for(method: Method, kind: str, n_rows: int = 60, missing: str | None = None) -> np.ndarray:
    """Hostile rows that a method takes."""
    return suited(method, hostile_data(kind, n_rows, 8, missing=missing))


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in METHODS for kind in HOSTILE if kind not in METHODS[name].tags.inexact_on],
)
@pytest.mark.filterwarnings("ignore:within classes")  # of a constant column
def test_laws(name, kind):
    for method in METHODS[name].examples():
        for labels in targets(method):
            check_method(method, rows_for(method, kind), labels=labels)


@pytest.mark.parametrize("name", METHODS)
def test_every_model_reports_its_facts(name):
    data = hostile_data("kind", 60, 8)
    spec = MatrixSpec(data.shape[0], data.shape[1], data.dtype, LABELS.dtype)
    for method in METHODS[name].examples():
        for route in method.routes(spec):
            model: Any = in_memory(route.method, suited(method, data), labels=LABELS)
            facts = {fact.name: fact.value for fact in model.facts()}
            parameters = {field.name for field in fields(method)}
            if "n_components" in parameters:
                assert {"components", "components of each"} & facts.keys(), (
                    "the number of components is a fact"
                )
                assert "solver" in facts, "the solver is a fact"
            if "k" in parameters:
                assert {"kept", "task"} <= facts.keys()
            if "explained" not in facts:
                continue
            ratios = model.explained_variance_ratio
            assert facts["explained"] == pytest.approx(ratios.sum())
            (table,) = (table for table in model.tables() if table.title == "explained variance")
            columns = np.array([list(row) for row in table.rows]).T
            total = model.separation if name == "lda" else model.total_variance
            expected = [np.arange(1, len(ratios) + 1), ratios * total, ratios, ratios.cumsum()]
            np.testing.assert_allclose(columns, expected, rtol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_laws_of_the_accumulators_of_a_method(name):
    for method in METHODS[name].examples():
        (labels, *_) = targets(method)
        check_passes(method, rows_for(method, "kind", 30), labels=None if labels is None else labels[:30])


def allows_missing_values(name: str) -> bool:
    model: Any = METHODS[name].model
    return model.allow_nan is True


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind not in LITTLE_NOISE])
@pytest.mark.parametrize("name", [name for name in METHODS if allows_missing_values(name)])
def test_laws_with_missing_values(name, kind, missing):
    for method in METHODS[name].examples():
        if getattr(method, "method", "") != "closed_form":
            check_method(method, rows_for(method, kind, missing=missing))


@pytest.mark.parametrize("missing", [None, *MISSING])
@pytest.mark.parametrize("kind", LITTLE_NOISE)
def test_latent_variables_are_exact_relative_to_the_noise(kind, missing):
    """They are in units of the noise, and rounding may be large relative to it: no law can be stricter."""
    data = hostile_data(kind, 60, 8, missing=missing)
    for method in PPCA.examples():
        if missing is not None and method.method == "closed_form":
            continue
        for route in method.routes(MatrixSpec(data.shape[0], data.shape[1], data.dtype)):
            model, again = (checked(PPCAModel, in_memory(route.method, data)) for _ in range(2))
            whole = model.transform(data)
            np.testing.assert_array_equal(again.transform(data), whole)
            contrast = model.explained_variance[0] / model.noise_variance
            rounding = 64 * np.finfo(np.float64).eps * contrast * np.abs(whole).max()
            np.testing.assert_allclose(model.transform(data[:1]), whole[:1], rtol=0, atol=rounding)


@pytest.mark.parametrize("kind", LITTLE_NOISE)
def test_laws_of_discriminants_with_shrinkage(kind):
    """Where one variance is much larger than others, scores of unit variance are small differences."""
    for shrinkage in (0.1, "auto"):
        check_method(LDA(shrinkage=shrinkage), hostile_data(kind, 60, 8), labels=LABELS)


MDS_CASES = [
    (method.name, kind) for method in mds.METHODS for kind in HOSTILE if kind not in method.tags.inexact_on
]


@pytest.mark.parametrize(("name", "kind"), MDS_CASES)
def test_laws_of_mds_of_stored_distances(name, kind):
    rows = hostile_data(kind, 60, 8).astype(float)
    distances = cdist(rows, rows)
    for method in METHODS[name].examples():
        check_method(replace(method, metric="precomputed"), distances)


@pytest.mark.parametrize("whiten", ["pca", "zca"])
@pytest.mark.parametrize("kind", ["kind", "float32", "bytes", "big offset"])
def test_laws_of_whitening(whiten, kind):
    check_method(PCA(3, whiten=whiten), hostile_data(kind, 60, 8))
