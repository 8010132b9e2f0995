"""LDA against two solvers of scikit-learn, published values for iris, and mathematical identities."""

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
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a little": {"shrinkage": 0.05},
    "half": {"shrinkage": 0.5},
    "auto": {"shrinkage": "auto"},
    "priors": {"priors": [0.2, 0.8]},
    "priors and a number": {"priors": [0.2, 0.8], "shrinkage": 0.1},
    "priors and auto": {"priors": [0.2, 0.8], "shrinkage": "auto"},
}


def settings(name: str, classes: int) -> dict:
    """The parameters of a setting, with one prior for each class."""
    given = dict(SETTINGS[name])
    if "priors" in given:
        given["priors"] = {2: [0.2, 0.8], 3: [0.2, 0.3, 0.5]}[classes]
    return given


def same_signs(scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The scores, with the sign of each column as in the expected scores."""
    return scores * np.sign(np.sum(scores * wanted, axis=0))


def assert_close(found: np.ndarray, wanted: np.ndarray, why: str = "") -> None:
    """Assert equality up to 1e-8 of the largest value."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8 * np.abs(wanted).max(), err_msg=why)


# scikit-learn


def test_published_eigenvalues_of_iris():
    model = LDA().fit(*DATA["iris"])
    np.testing.assert_allclose(model.eigenvalues_, [32.19192920, 0.28539104], rtol=0, atol=5e-9)
    np.testing.assert_allclose(model.explained_variance_ratio_, [0.9912126, 0.0087874], rtol=0, atol=5e-8)


@pytest.mark.parametrize("n_components", [None, 1])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", DATA)
def test_results_equal_the_eigen_solver_of_scikit_learn(name, setting, n_components):
    rows, labels = DATA[name]
    given = settings(setting, len(np.unique(labels)))
    reference = Reference(solver="eigen", n_components=n_components, **given).fit(rows, labels)
    ours = LDA(n_components, **given).fit(rows, labels)
    assert_close(ours.covariance_, reference.covariance_)
    assert_close(ours.means_, reference.means_)
    assert_close(ours.priors_, reference.priors_)
    assert_close(ours.predict_proba(rows), reference.predict_proba(rows))
    assert (ours.predict(rows) == reference.predict(rows)).all()
    assert ours.score(rows, labels) == pytest.approx(reference.score(rows, labels), abs=1e-12)
    # scikit-learn does not centre the scores on the mean of the classes.
    wanted = reference.transform(rows) - ours.xbar_ @ reference.scalings_[:, : ours.n_components_]
    assert_close(same_signs(ours.transform(rows), wanted), wanted)
    if len(ours.classes_) > 2:
        assert_close(ours.coef_, reference.coef_ - ours.priors_ @ reference.coef_)
    else:
        assert_close(ours.coef_, reference.coef_)
        assert_close(ours.intercept_, reference.intercept_)
        assert_close(ours.decision_function(rows), reference.decision_function(rows))
    if "priors" not in given and given.get("shrinkage") != "auto":
        assert_close(ours.explained_variance_ratio_, reference.explained_variance_ratio_)
    assert 0 < ours.explained_variance_ratio_.sum() < 1 + 1e-12


@pytest.mark.parametrize("name", DATA)
def test_results_equal_the_svd_solver_of_scikit_learn(name):
    rows, labels = DATA[name]
    reference, ours = Reference().fit(rows, labels), LDA().fit(rows, labels)
    assert_close(same_signs(ours.transform(rows), reference.transform(rows)), reference.transform(rows))
    for method in ("predict_proba", "decision_function", "predict_log_proba"):
        assert_close(getattr(ours, method)(rows), getattr(reference, method)(rows), method)
    for value in ("coef_", "intercept_", "xbar_", "explained_variance_ratio_"):
        assert_close(getattr(ours, value), getattr(reference, value), value)


def test_more_classes_than_features():
    rows, labels = load_digits(return_X_y=True)
    rows = rows[:, [20, 28, 36]]
    reference, ours = Reference().fit(rows, labels), LDA().fit(rows, labels)
    assert ours.n_components_ == 3
    assert_close(same_signs(ours.transform(rows), reference.transform(rows)), reference.transform(rows))
    assert_close(ours.predict_proba(rows), reference.predict_proba(rows))


# Mathematics


def test_total_scatter_is_the_sum_of_scatter_within_and_between_classes():
    rows, labels = DATA["wine"]
    model = LDA().fit(rows, labels).model_
    total = (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0))
    assert_close(model.within_scatter + model.between_scatter, total)


def test_discriminants_solve_the_generalised_eigenvalue_problem():
    rows, labels = DATA["wine"]
    model = LDA().fit(rows, labels).model_
    within, between, scalings = model.within_scatter, model.between_scatter, model.scalings
    assert_close(between @ scalings, within @ scalings * model.eigenvalues)
    assert_close(scalings.T @ model.covariance @ scalings, np.eye(2), "unit variance within classes")
    for column in scalings.T:
        assert column[np.argmax(np.abs(column))] > 0


def test_the_discriminant_of_two_classes_is_fishers_direction():
    rows, labels = DATA["breast cancer"]
    model = LDA().fit(rows, labels).model_
    fisher = scipy.linalg.solve(model.within_scatter, model.means[1] - model.means[0], assume_a="pos")
    direction = model.scalings[:, 0]
    cosine = fisher @ direction / np.linalg.norm(fisher) / np.linalg.norm(direction)
    assert abs(cosine) == pytest.approx(1.0, abs=1e-10)


def test_integer_weights_equal_repeated_rows():
    rows, labels = DATA["wine"]
    weights = np.random.default_rng(0).integers(0, 4, len(rows))
    repeated, again = np.repeat(rows, weights, axis=0), np.repeat(labels, weights)
    for setting in SETTINGS:
        given = settings(setting, 3)
        one = LDA(**given).fit(rows, labels, sample_weight=weights)
        other = LDA(**given).fit(repeated, again)
        assert_close(one.transform(rows), other.transform(rows), setting)
        assert_close(one.predict_proba(rows), other.predict_proba(rows), setting)
        assert one.score(rows, labels, weights) == pytest.approx(other.score(repeated, again), abs=1e-12)


def test_a_class_of_weight_zero_is_left_out():
    rows, labels = DATA["iris"]
    model = LDA().fit(rows, labels, sample_weight=(labels != 1).astype(float))
    assert model.classes_.tolist() == [0, 2]
    assert_close(model.coef_, LDA().fit(rows[labels != 1], labels[labels != 1]).coef_)


# Numerically hostile data


def test_a_large_offset_changes_nothing():
    rows, labels = DATA["iris"]
    far = np.round(rows * 16) / 16 + 1e8  # exact, in steps of a sixteenth
    near = far - 1e8
    for setting in SETTINGS:
        given = settings(setting, 3)
        one, other = (LDA(**given).fit(each, labels) for each in (far, near))
        assert_close(one.covariance_, other.covariance_, setting)
        np.testing.assert_allclose(
            one.transform(far), other.transform(near), atol=2e-7
        )  # rounding of a mean of 1e8


def test_classes_far_apart_do_not_cancel():
    """Two classes are close together, and the third is 1e8 standard deviations away."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 2000)
    noise = np.round(rng.normal(size=(2000, 4)) * 64) / 64
    rows = noise + np.array([[0, 0, 0, 0], [1, 2, 0, -1], [1e8, -1e8, 3e8, 0]])[labels]
    model = LDA().fit(rows, labels).model_
    near = rows - np.array([[0, 0, 0, 0], [0, 0, 0, 0], [1e8, -1e8, 3e8, 0]])[labels]
    within = sum(
        np.cov(near[labels == label].T, ddof=0) * (labels == label).sum() for label in range(3)
    ) / len(rows)
    assert_close(model.covariance, within)
    close = labels < 2
    pair = Reference(solver="eigen", priors=[0.5, 0.5]).fit(near[close], labels[close])
    gap = pair.means_[1] - pair.means_[0]
    lower = np.linalg.cholesky(within)
    away, step = (np.linalg.solve(lower, vector) for vector in (np.array([1.0, -1.0, 3.0, 0.0]), gap))
    step -= away * (away @ step) / (away @ away)  # the first discriminant points to the third class
    ratio = step @ step * np.prod(np.bincount(labels[close])) / close.sum()
    assert model.eigenvalues[1] * len(rows) == pytest.approx(ratio, rel=1e-6)
    log_odds = np.diff(model.predict_log_proba(rows[close])[:, :2], axis=1)[:, 0]
    middle = (pair.means_[1] + pair.means_[0]) / 2
    prior = np.log(model.priors[1] / model.priors[0])
    wanted = (near[close] - middle) @ scipy.linalg.solve(within, gap) + prior
    np.testing.assert_allclose(log_odds, wanted, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64", ">f8"])
def test_dtypes_of_rows(dtype):
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


@pytest.mark.parametrize("setting", SETTINGS)
def test_any_partition_into_blocks_gives_the_same_model(setting):
    """One row per block, blocks of one class, and blocks without some of the classes."""
    rows, labels = DATA["iris"]
    labels = labels.astype(float)
    method = METHOD(**settings(setting, 3))
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
        assert_close(model.covariance, whole.covariance)
        assert_close(model.transform(rows), whole.transform(rows))


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


def test_partial_fit_may_add_new_classes():
    rows, labels = DATA["wine"]
    whole = LDA().fit(rows, labels)
    model = LDA()
    model.partial_fit(rows[:50], labels[:50])
    with pytest.raises(DataError, match="one class only"):
        model.transform(rows)
    model.partial_fit(rows[50:130], labels[50:130], classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1]
    model.partial_fit(rows[130:], labels[130:])
    assert_close(model.coef_, whole.coef_)
    assert_close(model.transform(rows), whole.transform(rows))
    with pytest.raises(ParameterError, match="two passes"):
        LDA(shrinkage="auto").partial_fit(rows, labels)


def test_shrinkage_of_one_keeps_the_directions_of_the_means():
    rows, labels = DATA["wine"]
    model = LDA(shrinkage=1.0).fit(rows, labels)
    reference = Reference(solver="eigen", shrinkage=1.0).fit(rows, labels)
    assert_close(model.predict_proba(rows), reference.predict_proba(rows))
    means = model.means_ - model.xbar_
    _, _, axes = np.linalg.svd(means * np.sqrt(model.priors_)[:, None], full_matrices=False)
    cosines = np.abs(np.sum(axes[:2] * model.scalings_.T, axis=1)) / np.linalg.norm(model.scalings_, axis=0)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-9)


# Invalid parameters and data


@pytest.mark.parametrize(
    ("given", "parameter", "message"),
    [
        ({"n_components": 0}, "n_components", "at least 1"),
        ({"n_components": 1.5}, "n_components", "whole number"),
        ({"shrinkage": 1.1}, "shrinkage", "from 0 to 1"),
        ({"shrinkage": "ledoit"}, "shrinkage", "'auto'"),
        ({"priors": [0.5]}, "priors", "one for each class"),
        ({"priors": [-0.5, 1.5]}, "priors", "negative"),
        ({"priors": [0.0, 0.0]}, "priors", "all be 0"),
        ({"precision": "half"}, "precision", "is neither .mixed. nor .double."),
        ({"max_classes": 1}, "max_classes", "at least 2"),
    ],
)
def test_invalid_parameters_are_refused(given, parameter, message):
    with pytest.raises(ParameterError, match=message) as refused:
        METHOD(**given).check()
    assert refused.value.parameter == parameter


def test_parameters_that_do_not_fit_the_data_are_refused():
    rows, labels = DATA["iris"]
    with pytest.raises(ParameterError, match="set it to 2 or fewer"):
        LDA(3).fit(rows, labels)
    with pytest.raises(ParameterError, match="set it to 4 or fewer"):
        LDA(5).fit(rows, labels)
    with pytest.raises(ParameterError, match=r"4 priors for 3 classes \(0, 1, 2\)"):
        LDA(priors=[0.25] * 4).fit(rows, labels)
    with pytest.raises(DataError, match=r"more than 2 different values.*one prior for each class"):
        LDA(priors=[0.5, 0.5]).fit(rows, labels)
    with pytest.raises(DataError, match="labels have one class only, 1"):
        LDA().fit(rows, np.ones(150, int))
    with pytest.raises(DataError, match=r"more than 100 different values .* numbers to predict"):
        LDA(max_classes=100).fit(rows, np.arange(150))
    with pytest.raises(DataError, match="means of all classes are the same"):
        LDA().fit(np.array([[-1.0], [1.0], [-1.0], [1.0]]), [0, 0, 1, 1])
    with pytest.raises(DataError, match="no column varies within any class"):
        LDA().fit(np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [3.0, 2.0]]), [0, 0, 1, 1])


def test_priors_are_normalised():
    rows, labels = DATA["iris"]
    assert_close(
        LDA(priors=[2, 3, 5]).fit(rows, labels).coef_, LDA(priors=[0.2, 0.3, 0.5]).fit(rows, labels).coef_
    )


def test_a_class_of_one_row_is_fitted():
    rows, labels = DATA["iris"]
    labels = np.where(np.arange(150) == 149, 7, labels)
    for given in ({}, {"shrinkage": 0.1}, {"shrinkage": "auto"}):
        reference = Reference(solver="eigen", **given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ledoit-Wolf shrinkage of a single row
            reference.fit(rows, labels)
        assert_close(LDA(**given).fit(rows, labels).predict_proba(rows), reference.predict_proba(rows))


def test_collinear_features_raise_a_warning_and_count_once():
    rows, labels = DATA["iris"]
    wide = np.column_stack([rows, rows[:, 0] - rows[:, 1], np.full(150, 3.0), labels])
    with pytest.warns(UserWarning, match=r"7 features vary in 4 directions only; .*shrinkage"):
        model = LDA().fit(wide, labels)
    assert model.rank_ == 4
    assert "shrinkage" in model.model_.summary()["notes"][0]
    assert_close(model.predict_proba(wide), LDA().fit(rows, labels).predict_proba(rows))
    assert_close(model.predict_proba(wide), Reference().fit(wide, labels).predict_proba(wide))
    shrunk = LDA(shrinkage="auto").fit(wide, labels)
    assert shrunk.score(wide, labels) == 1.0, "the label is among the features"
    alone = np.where(np.arange(150) == 149, 7, labels)
    with pytest.warns(UserWarning, match="class 7 has one row"):
        LDA().fit(wide, alone)


def test_missing_and_infinite_values_are_refused():
    rows, labels = DATA["iris"]
    for value in (np.nan, np.inf):
        broken = rows.copy()
        broken[5, 2] = value
        with pytest.raises(DataError, match=r"missing|infinite"):
            in_memory(METHOD(), broken, labels=labels)


def test_the_summary_of_a_model():
    model = in_memory(METHOD(1), DATA["iris"][0], labels=DATA["iris"][1])
    assert isinstance(model, LDAModel)
    summary = model.summary()
    assert summary["n_classes"] == 3
    assert summary["n_components"] == 1
    assert summary["notes"] == []


def test_rows_of_many_classes_are_predicted_in_tiles():
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 1000
    rows = 9 * rng.standard_normal((1000, 3))[labels] + rng.standard_normal((3000, 3))
    model = checked(LDAModel, in_memory(METHOD(), rows, labels=labels))
    few = np.concatenate([model.predict_proba(part) for part in np.split(rows, 30)])
    np.testing.assert_allclose(model.predict_proba(rows), few, rtol=0, atol=1e-12)
    assert np.array_equal(model.predict(rows), np.asarray(model.classes)[few.argmax(axis=1)])
