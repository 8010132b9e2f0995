"""Linear discriminants against scikit-learn's two solvers, the table of the irises, and mathematics."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import pytest
import scipy.linalg
from narrowing import checked
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as Reference

from streamdr import LDA, load_model
from streamdr.core.blocks import Block, MatrixSpec, Span
from streamdr.core.method import in_memory
from streamdr.errors import DataError, ParameterError
from streamdr.methods.lda import LDA as METHOD
from streamdr.methods.lda.model import LDAModel

DATA = {
    "iris": load_iris(return_X_y=True),
    "wine": load_wine(return_X_y=True),
    "breast cancer": load_breast_cancer(return_X_y=True),
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a little": {"shrinkage": 0.05},
    "half": {"shrinkage": 0.5},
    "auto": {"shrinkage": "auto"},
    "priors": {"priors": [0.2, 0.8]},
    "priors and a number": {"priors": [0.2, 0.8], "shrinkage": 0.1},
    "priors and auto": {"priors": [0.2, 0.8], "shrinkage": "auto"},
}


def ways(name: str, classes: int) -> dict:
    """Parameters, with as many priors as there are classes."""
    given = dict(WAYS[name])
    if "priors" in given:
        given["priors"] = {2: [0.2, 0.8], 3: [0.2, 0.3, 0.5]}[classes]
    return given


def same_sides(scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Scores with each column turned towards the wanted one."""
    return scores * np.sign(np.sum(scores * wanted, axis=0))


def agrees(found: np.ndarray, wanted: np.ndarray, why: str = "") -> None:
    """To 1e-8 of the largest."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8 * np.abs(wanted).max(), err_msg=why)


# scikit-learn


def test_the_table_of_the_irises():
    model = LDA().fit(*DATA["iris"])
    np.testing.assert_allclose(model.eigenvalues_, [32.19192920, 0.28539104], rtol=0, atol=5e-9)
    np.testing.assert_allclose(model.explained_variance_ratio_, [0.9912126, 0.0087874], rtol=0, atol=5e-8)


@pytest.mark.parametrize("n_components", [None, 1])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DATA)
def test_what_the_eigen_solver_of_scikit_learn_gives(name, way, n_components):
    rows, labels = DATA[name]
    given = ways(way, len(np.unique(labels)))
    theirs = Reference(solver="eigen", n_components=n_components, **given).fit(rows, labels)
    ours = LDA(n_components, **given).fit(rows, labels)
    agrees(ours.covariance_, theirs.covariance_)
    agrees(ours.means_, theirs.means_)
    agrees(ours.priors_, theirs.priors_)
    agrees(ours.predict_proba(rows), theirs.predict_proba(rows))
    assert (ours.predict(rows) == theirs.predict(rows)).all()
    assert ours.score(rows, labels) == pytest.approx(theirs.score(rows, labels), abs=1e-12)
    # Theirs are not about the mean of the classes.
    wanted = theirs.transform(rows) - ours.xbar_ @ theirs.scalings_[:, : ours.n_components_]
    agrees(same_sides(ours.transform(rows), wanted), wanted)
    if len(ours.classes_) > 2:
        agrees(ours.coef_, theirs.coef_ - ours.priors_ @ theirs.coef_)
    else:
        agrees(ours.coef_, theirs.coef_)
        agrees(ours.intercept_, theirs.intercept_)
        agrees(ours.decision_function(rows), theirs.decision_function(rows))
    if "priors" not in given and given.get("shrinkage") != "auto":
        agrees(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)
    assert 0 < ours.explained_variance_ratio_.sum() < 1 + 1e-12


@pytest.mark.parametrize("name", DATA)
def test_what_the_svd_solver_of_scikit_learn_gives(name):
    rows, labels = DATA[name]
    theirs, ours = Reference().fit(rows, labels), LDA().fit(rows, labels)
    agrees(same_sides(ours.transform(rows), theirs.transform(rows)), theirs.transform(rows))
    for method in ("predict_proba", "decision_function", "predict_log_proba"):
        agrees(getattr(ours, method)(rows), getattr(theirs, method)(rows), method)
    for value in ("coef_", "intercept_", "xbar_", "explained_variance_ratio_"):
        agrees(getattr(ours, value), getattr(theirs, value), value)


def test_more_classes_than_features_can_tell():
    rows, labels = load_digits(return_X_y=True)
    rows = rows[:, [20, 28, 36]]
    theirs, ours = Reference().fit(rows, labels), LDA().fit(rows, labels)
    assert ours.n_components_ == 3
    agrees(same_sides(ours.transform(rows), theirs.transform(rows)), theirs.transform(rows))
    agrees(ours.predict_proba(rows), theirs.predict_proba(rows))


# Mathematics


def test_total_scatter_is_that_within_classes_and_that_between():
    rows, labels = DATA["wine"]
    model = LDA().fit(rows, labels).model_
    total = (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0))
    agrees(model.within_scatter + model.between_scatter, total)


def test_discriminants_solve_the_generalised_eigenvalue_problem():
    rows, labels = DATA["wine"]
    model = LDA().fit(rows, labels).model_
    within, between, scalings = model.within_scatter, model.between_scatter, model.scalings
    agrees(between @ scalings, within @ scalings * model.eigenvalues)
    agrees(scalings.T @ model.covariance @ scalings, np.eye(2), "unit variance within classes")
    for column in scalings.T:
        assert column[np.argmax(np.abs(column))] > 0


def test_of_two_classes_it_is_fishers_direction():
    rows, labels = DATA["breast cancer"]
    model = LDA().fit(rows, labels).model_
    fisher = scipy.linalg.solve(model.within_scatter, model.means[1] - model.means[0], assume_a="pos")
    direction = model.scalings[:, 0]
    cosine = fisher @ direction / np.linalg.norm(fisher) / np.linalg.norm(direction)
    assert abs(cosine) == pytest.approx(1.0, abs=1e-10)


def test_weights_are_repetitions():
    rows, labels = DATA["wine"]
    weights = np.random.default_rng(0).integers(0, 4, len(rows))
    repeated, again = np.repeat(rows, weights, axis=0), np.repeat(labels, weights)
    for way in WAYS:
        given = ways(way, 3)
        one = LDA(**given).fit(rows, labels, sample_weight=weights)
        other = LDA(**given).fit(repeated, again)
        agrees(one.transform(rows), other.transform(rows), way)
        agrees(one.predict_proba(rows), other.predict_proba(rows), way)
        assert one.score(rows, labels, weights) == pytest.approx(other.score(repeated, again), abs=1e-12)


def test_a_class_of_no_weight_is_none():
    rows, labels = DATA["iris"]
    model = LDA().fit(rows, labels, sample_weight=(labels != 1).astype(float))
    assert model.classes_.tolist() == [0, 2]
    agrees(model.coef_, LDA().fit(rows[labels != 1], labels[labels != 1]).coef_)


# Data that breaks careless sums


def test_an_offset_changes_nothing():
    rows, labels = DATA["iris"]
    far = np.round(rows * 16) / 16 + 1e8  # exact, in steps of a sixteenth
    near = far - 1e8
    for way in WAYS:
        given = ways(way, 3)
        one, other = (LDA(**given).fit(each, labels) for each in (far, near))
        agrees(one.covariance_, other.covariance_, way)
        np.testing.assert_allclose(one.transform(far), other.transform(near), atol=2e-7)  # of a mean of 1e8


def test_classes_far_apart_do_not_cancel():
    """Two are close together, and the third is 1e8 deviations away."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 2000)
    noise = np.round(rng.normal(size=(2000, 4)) * 64) / 64
    rows = noise + np.array([[0, 0, 0, 0], [1, 2, 0, -1], [1e8, -1e8, 3e8, 0]])[labels]
    model = LDA().fit(rows, labels).model_
    near = rows - np.array([[0, 0, 0, 0], [0, 0, 0, 0], [1e8, -1e8, 3e8, 0]])[labels]
    within = sum(
        np.cov(near[labels == label].T, ddof=0) * (labels == label).sum() for label in range(3)
    ) / len(rows)
    agrees(model.covariance, within)
    close = labels < 2
    pair = Reference(solver="eigen", priors=[0.5, 0.5]).fit(near[close], labels[close])
    gap = pair.means_[1] - pair.means_[0]
    lower = np.linalg.cholesky(within)
    away, step = (np.linalg.solve(lower, vector) for vector in (np.array([1.0, -1.0, 3.0, 0.0]), gap))
    step -= away * (away @ step) / (away @ away)  # the first discriminant is the way to the third class
    ratio = step @ step * np.prod(np.bincount(labels[close])) / close.sum()
    assert model.eigenvalues[1] * len(rows) == pytest.approx(ratio, rel=1e-6)
    log_odds = np.diff(model.predict_log_proba(rows[close])[:, :2], axis=1)[:, 0]
    middle = (pair.means_[1] + pair.means_[0]) / 2
    prior = np.log(model.priors[1] / model.priors[0])
    wanted = (near[close] - middle) @ scipy.linalg.solve(within, gap) + prior
    np.testing.assert_allclose(log_odds, wanted, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64", ">f8"])
def test_types(dtype):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 900)
    rows = (rng.normal(size=(900, 5)) * 20 + 120 + 15 * np.arange(4)[labels, None] * [1, 0, 1, 0, 1]).astype(
        dtype
    )
    exact = Reference(solver="eigen").fit(rows.astype(float), labels)
    wanted: dict[Literal["mixed", "double"], float] = {
        "mixed": 2e-4 if dtype != "int64" else 1e-8,
        "double": 1e-8,
    }
    for precision, digits in wanted.items():
        model = LDA(precision=precision).fit(rows, labels)
        scale = np.abs(exact.covariance_).max()
        np.testing.assert_allclose(model.covariance_, exact.covariance_, atol=digits * scale)
        np.testing.assert_allclose(
            model.predict_proba(rows), exact.predict_proba(rows.astype(float)), atol=2e-3
        )
        assert model.transform(rows).dtype == (np.float64 if dtype in ("int64", ">f8") else np.float32)


@pytest.mark.parametrize("way", WAYS)
def test_any_blocks_give_the_same(way):
    """One row a block, blocks of one class, blocks that lack classes."""
    rows, labels = DATA["iris"]
    labels = labels.astype(float)
    method = METHOD(**ways(way, 3))
    whole = checked(LDAModel, in_memory(method, rows, labels=labels))
    order = np.random.default_rng(1).permutation(len(rows))
    for cuts, by in ((range(150), order), ([0, 50, 100], np.arange(150)), ([0, 3, 3, 70], order)):
        passes = method.passes(MatrixSpec(150, 4, rows.dtype, labels.dtype))
        request = next(passes)
        with pytest.raises(StopIteration) as finished:
            while True:
                full = request.empty.empty_like()
                for start, stop in zip(cuts, [*list(cuts)[1:], 150], strict=True):
                    here = by[start:stop]
                    full.update(Block(Span(start, stop), rows[here], labels[here]))
                request = passes.send(full)
        model = finished.value.value
        agrees(model.covariance, whole.covariance)
        agrees(model.transform(rows), whole.transform(rows))


# Labels


def test_text_and_other_labels(tmp_path):
    rows, labels = DATA["iris"]
    names = np.array(["virginica", "setosa", "a rather long name"])
    plain = LDA().fit(rows, labels)
    for given in (names[labels], list(names[labels]), names[labels].astype(object)):
        model = LDA().fit(rows, given)
        assert model.classes_.tolist() == sorted(names)
        assert (model.predict(rows) == names[plain.predict(rows)]).all()
        assert model.score(rows, given) == plain.score(rows, labels)
    model.save(tmp_path / "m.zarr")
    loaded = load_model(tmp_path / "m.zarr")
    assert loaded.classes_.tolist() == sorted(names)
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    assert set(LDA().fit(rows, labels * 2.0 - 1).predict(rows)) == {-1.0, 1.0, 3.0}
    two = LDA().fit(rows, labels == 1)
    assert two.classes_.dtype == bool
    assert two.predict(rows).dtype == bool
    small = LDA().fit(rows, labels.astype(np.int8)).save(tmp_path / "i.zarr")
    assert load_model(small).classes_.dtype == np.int8


def test_rows_that_come_a_few_at_a_time_may_bring_new_classes():
    rows, labels = DATA["wine"]
    whole = LDA().fit(rows, labels)
    model = LDA()
    model.partial_fit(rows[:50], labels[:50])
    with pytest.raises(DataError, match="one class only"):
        model.transform(rows)
    model.partial_fit(rows[50:130], labels[50:130], classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1]
    model.partial_fit(rows[130:], labels[130:])
    agrees(model.coef_, whole.coef_)
    agrees(model.transform(rows), whole.transform(rows))
    with pytest.raises(ParameterError, match="two passes"):
        LDA(shrinkage="auto").partial_fit(rows, labels)


def test_there_is_a_direction_even_where_everything_is_shrunk_to_a_sphere():
    rows, labels = DATA["wine"]
    model = LDA(shrinkage=1.0).fit(rows, labels)
    theirs = Reference(solver="eigen", shrinkage=1.0).fit(rows, labels)
    agrees(model.predict_proba(rows), theirs.predict_proba(rows))
    means = model.means_ - model.xbar_
    _, _, axes = np.linalg.svd(means * np.sqrt(model.priors_)[:, None], full_matrices=False)
    cosines = np.abs(np.sum(axes[:2] * model.scalings_.T, axis=1)) / np.linalg.norm(model.scalings_, axis=0)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-9)


# What cannot be


@pytest.mark.parametrize(
    ("given", "parameter", "words"),
    [
        ({"n_components": 0}, "n_components", "at least 1"),
        ({"n_components": 1.5}, "n_components", "whole number"),
        ({"shrinkage": 1.1}, "shrinkage", "from 0 to 1"),
        ({"shrinkage": "ledoit"}, "shrinkage", "'auto'"),
        ({"priors": [0.5]}, "priors", "one a class"),
        ({"priors": [-0.5, 1.5]}, "priors", "negative"),
        ({"priors": [0.0, 0.0]}, "priors", "all be 0"),
        ({"precision": "half"}, "precision", "is neither .mixed. nor .double."),
        ({"max_classes": 1}, "max_classes", "at least 2"),
    ],
)
def test_parameters_that_mean_nothing(given, parameter, words):
    with pytest.raises(ParameterError, match=words) as refused:
        METHOD(**given).check()
    assert refused.value.parameter == parameter


def test_what_the_data_cannot_satisfy():
    rows, labels = DATA["iris"]
    with pytest.raises(ParameterError, match="set it to 2 or fewer"):
        LDA(3).fit(rows, labels)
    with pytest.raises(ParameterError, match="set it to 4 or fewer"):
        LDA(5).fit(rows, labels)
    with pytest.raises(ParameterError, match=r"4 priors for 3 classes \(0, 1, 2\)"):
        LDA(priors=[0.25] * 4).fit(rows, labels)
    with pytest.raises(DataError, match=r"more than 2 different values.*one prior a class"):
        LDA(priors=[0.5, 0.5]).fit(rows, labels)
    with pytest.raises(DataError, match="labels have one class only, 1"):
        LDA().fit(rows, np.ones(150, int))
    with pytest.raises(DataError, match=r"more than 100 different values .* numbers to predict"):
        LDA(max_classes=100).fit(rows, np.arange(150))
    with pytest.raises(DataError, match="means of all classes are the same"):
        LDA().fit(np.array([[-1.0], [1.0], [-1.0], [1.0]]), [0, 0, 1, 1])
    with pytest.raises(DataError, match="no column varies within any class"):
        LDA().fit(np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [3.0, 2.0]]), [0, 0, 1, 1])


def test_priors_are_brought_to_one():
    rows, labels = DATA["iris"]
    agrees(LDA(priors=[2, 3, 5]).fit(rows, labels).coef_, LDA(priors=[0.2, 0.3, 0.5]).fit(rows, labels).coef_)


def test_a_class_of_one_row_is_learnt():
    rows, labels = DATA["iris"]
    labels = np.where(np.arange(150) == 149, 7, labels)
    for given in ({}, {"shrinkage": 0.1}, {"shrinkage": "auto"}):
        theirs = Reference(solver="eigen", **given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ledoit and Wolf, of one row
            theirs.fit(rows, labels)
        agrees(LDA(**given).fit(rows, labels).predict_proba(rows), theirs.predict_proba(rows))


def test_features_that_depend_on_each_other_are_told_and_count_once():
    rows, labels = DATA["iris"]
    wide = np.column_stack([rows, rows[:, 0] - rows[:, 1], np.full(150, 3.0), labels])
    with pytest.warns(UserWarning, match=r"7 features vary in 4 directions only, .*shrinkage"):
        model = LDA().fit(wide, labels)
    assert model.rank_ == 4
    assert "shrinkage" in model.model_.summary()["notes"][0]
    agrees(model.predict_proba(wide), LDA().fit(rows, labels).predict_proba(rows))
    agrees(model.predict_proba(wide), Reference().fit(wide, labels).predict_proba(wide))
    shrunk = LDA(shrinkage="auto").fit(wide, labels)
    assert shrunk.score(wide, labels) == 1.0, "the label is among the features"
    alone = np.where(np.arange(150) == 149, 7, labels)
    with pytest.warns(UserWarning, match="class 7 has one row"):
        LDA().fit(wide, alone)


def test_missing_and_infinite_values_are_found():
    rows, labels = DATA["iris"]
    for value in (np.nan, np.inf):
        broken = rows.copy()
        broken[5, 2] = value
        with pytest.raises(DataError, match=r"missing|infinite"):
            in_memory(METHOD(), broken, labels=labels)


def test_a_model_is_a_plain_record():
    model = in_memory(METHOD(1), DATA["iris"][0], labels=DATA["iris"][1])
    assert isinstance(model, LDAModel)
    told = model.summary()
    assert told["n_classes"] == 3
    assert told["n_components"] == 1
    assert told["notes"] == []


def test_of_many_classes_rows_are_looked_at_a_few_at_a_time():
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 1000
    rows = 9 * rng.standard_normal((1000, 3))[labels] + rng.standard_normal((3000, 3))
    model = checked(LDAModel, in_memory(METHOD(), rows, labels=labels))
    few = np.concatenate([model.predict_proba(part) for part in np.split(rows, 30)])
    np.testing.assert_allclose(model.predict_proba(rows), few, rtol=0, atol=1e-12)
    assert np.array_equal(model.predict(rows), np.asarray(model.classes)[few.argmax(axis=1)])
