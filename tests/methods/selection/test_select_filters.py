"""Filters have the scores of scikit-learn, and keep the columns with the largest scores."""

from __future__ import annotations

import numpy as np
import plain_selection as plain
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.feature_selection import f_classif, f_regression, r_regression
from sklearn.metrics import mutual_info_score

import streamdr
from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import in_memory
from streamdr.errors import DataError, ParameterError
from streamdr.methods.selection import SelectCorrelation, SelectFScore, SelectMutualInfo

FILTERS = (SelectMutualInfo, SelectFScore, SelectCorrelation)


def fit(method, rows, labels, weights=None):
    (route,) = method.routes(MatrixSpec(rows.shape[0], rows.shape[1], rows.dtype, labels.dtype))
    return in_memory(route.method, rows, weights, labels)


def digits():
    rows, labels = load_digits(return_X_y=True)
    return rows[:, rows.std(axis=0) > 0], labels


CLASSES = {
    "iris": load_iris(return_X_y=True),
    "cancer": load_breast_cancer(return_X_y=True),
    "digits": digits(),
}


@pytest.mark.parametrize("name", CLASSES)
def test_f_statistics_of_classes_equal_scikit_learn(name):
    rows, labels = CLASSES[name]
    expected, p_values = f_classif(rows, labels)
    for scores in (fit(SelectFScore(2), rows, labels), fit(SelectFScore("cv"), rows, labels)):
        np.testing.assert_allclose(scores.scores, expected, rtol=1e-10)
        np.testing.assert_allclose(scores.p_values, p_values, rtol=1e-8)


def test_f_statistics_and_correlations_with_a_numeric_target():
    rows, target = load_diabetes(return_X_y=True)
    expected, p_values = f_regression(rows, target)
    for k in (3, "cv"):
        model = fit(SelectFScore(k), rows, target)
        np.testing.assert_allclose(model.scores, expected, rtol=1e-10)
        np.testing.assert_allclose(model.p_values, p_values, rtol=1e-8)
        model = fit(SelectCorrelation(k), rows, target)
        np.testing.assert_allclose(model.scores, r_regression(rows, target), rtol=1e-10)
        np.testing.assert_allclose(model.p_values, p_values, rtol=1e-8)
    best = np.argsort(-np.abs(r_regression(rows, target)))[:3]
    assert fit(SelectCorrelation(3), rows, target).selected.tolist() == best.tolist()


def test_the_correlation_ratio_of_two_classes_is_the_correlation():
    rows, labels = CLASSES["cancer"]
    expected = np.abs(r_regression(rows, labels.astype(float)))
    np.testing.assert_allclose(fit(SelectCorrelation(2), rows, labels).scores, expected, rtol=1e-10)


def test_mutual_information_of_discrete_columns():
    rows, labels = CLASSES["digits"]
    model = fit(SelectMutualInfo(10, bias_correction=False), rows, labels)
    expected = [mutual_info_score(column, labels) for column in rows.T]
    assert model.discrete.all()
    np.testing.assert_allclose(model.scores, expected, rtol=0, atol=1e-12)
    assert model.selected.tolist() == np.argsort(-np.array(expected), kind="stable")[:10].tolist()


def test_mutual_information_of_discrete_values_that_are_not_integers():
    rows, labels = np.round(CLASSES["iris"][0], 1), np.array(["a", "b", "c"])[CLASSES["iris"][1]]
    model = fit(SelectMutualInfo(2, discrete=True, bias_correction=False), rows, labels)
    expected = [mutual_info_score(column.astype(str), labels) for column in rows.T]
    np.testing.assert_allclose(model.scores, expected, rtol=0, atol=1e-12)
    assert model.classes == ["a", "b", "c"]


def quantiles(column, n_bins):
    return np.quantile(column, np.arange(1, n_bins) / n_bins, method="inverted_cdf")


def test_mutual_information_of_binned_columns():
    rows, labels = CLASSES["cancer"]
    model = fit(SelectMutualInfo(5, n_bins=8, bias_correction=False), rows, labels)
    assert not model.discrete.any()
    expected = []
    for column in rows.T:
        cuts = quantiles(column, 8)
        expected.append(mutual_info_score(np.searchsorted(cuts, column, side="right"), labels))
    np.testing.assert_allclose(model.scores, expected, rtol=0, atol=1e-12)


def test_mutual_information_with_a_numeric_target():
    rows, target = load_diabetes(return_X_y=True)
    model = fit(SelectMutualInfo(5, n_bins=6, bias_correction=False), rows, target)
    assert model.task == "regression"
    bins = np.searchsorted(quantiles(target, 6), target, side="right")
    for column, score in zip(rows.T, model.scores, strict=True):
        cuts = np.unique(quantiles(column, 6))
        binned = np.searchsorted(cuts[cuts > column.min()], column, side="right")
        assert score == pytest.approx(mutual_info_score(binned, bins), abs=1e-12)


def test_each_value_of_a_target_of_few_integers_is_a_bin():
    rows, labels = CLASSES["digits"]
    model = fit(SelectMutualInfo(5, task="regression", bias_correction=False), rows, labels.astype(float))
    expected = [mutual_info_score(column, labels) for column in rows.T]
    np.testing.assert_allclose(model.scores, expected, atol=1e-12)


def test_the_bias_correction_removes_the_expected_bias():
    rng = np.random.default_rng(0)
    rows, labels = rng.integers(0, 20, size=(2000, 30)).astype(float), rng.integers(0, 5, size=2000)
    uncorrected = fit(SelectMutualInfo(3, bias_correction=False), rows, labels).scores
    corrected = fit(SelectMutualInfo(3), rows, labels).scores
    assert uncorrected.mean() > 0.015
    assert corrected.mean() < 0.004
    # (20 - 1)(5 - 1) / 2n when every cell has a row
    np.testing.assert_allclose(np.mean(uncorrected), 19 * 4 / (2 * 2000), rtol=0.1)


def test_values_that_are_not_in_the_sample_are_counted():
    """Rare values occur in rows that are not in the sample."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, size=60_000)
    rows = (rng.integers(0, 3, size=(60_000, 2)) + labels[:, None]).astype(np.float32)
    rare = rng.choice(60_000, size=40, replace=False)
    rows[rare, 0] = 10 + np.arange(40) % 20
    model = fit(SelectMutualInfo(1, bias_correction=False), rows, labels)
    expected = [mutual_info_score(column, labels) for column in rows.T]
    np.testing.assert_allclose(model.scores, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", FILTERS)
def test_integer_weights_equal_repeated_rows(method):
    rows, labels = CLASSES["iris"]
    weights = np.random.default_rng(3).integers(1, 4, size=len(rows))
    repeated = np.repeat(np.arange(len(rows)), weights)
    for target in (labels, labels + np.linspace(0, 1, len(rows))):
        model = fit(method(2), np.round(rows), target, weights.astype(float))
        expected = fit(method(2), np.round(rows)[repeated], target[repeated])
        np.testing.assert_allclose(model.scores, expected.scores, rtol=1e-10)


def rank_statistic(method, rows, labels):
    if method is SelectMutualInfo:
        return fit(SelectMutualInfo(1), rows, labels).scores
    if labels.dtype.kind == "f":
        return np.abs(r_regression(rows, labels))
    return f_classif(rows, labels)[0]


@pytest.mark.parametrize("method", FILTERS)
@pytest.mark.parametrize("target", ["classes", "numbers"])
def test_k_by_cross_validation_equals_the_plain_loop(method, target):
    """Columns are ranked without a fold, and evaluated on it, for every number of columns."""
    rng = np.random.default_rng(5)
    rows = np.round(2 * rng.normal(size=(150, 6)))
    labels: np.ndarray = (
        rng.integers(0, 3, size=150)
        if target == "classes"
        else rows @ rng.normal(size=6) + rng.normal(size=150)
    )
    rows = rows + (np.round(rng.normal(size=(3, 6)))[labels] if target == "classes" else 0)
    if method is SelectMutualInfo and target == "numbers":
        labels = np.round(labels)  # so that the bins do not depend on the sample
    score = (plain.discriminant if target == "classes" else plain.regression)(rows, labels, 4)
    folds, expected = streamdr.folds(150, 4), np.zeros((6, 4))
    for fold in range(4):
        order = np.argsort(-rank_statistic(method, rows[folds != fold], labels[folds != fold]), kind="stable")
        for size in range(1, 7):
            expected[size - 1, fold] = score(order[:size].tolist())[fold]
    model = fit(method("cv", n_folds=4), rows, labels)
    np.testing.assert_allclose(model.path_fold_scores, expected, atol=1e-9)
    assert model.n_outputs == np.argmax(expected.mean(axis=1)) + 1
    np.testing.assert_array_equal(model.path_sizes, np.arange(1, 7))
    assert model.path_features[: model.n_outputs].tolist() == model.selected.tolist()


def test_constant_columns_have_the_score_zero():
    rows, labels = CLASSES["iris"]
    rows = np.column_stack([np.full(len(rows), 0.1), rows, np.zeros(len(rows))])
    for method in FILTERS:
        for target in (labels, labels + 0.5):
            model = fit(method(4), rows, target)
            assert model.scores[0] == model.scores[-1] == 0.0
            assert sorted(model.selected) == [1, 2, 3, 4]
    with_target = np.column_stack([rows, labels])
    assert fit(SelectFScore(1), with_target, labels).selected.tolist() == [6]
    assert np.isfinite(fit(SelectFScore(1), with_target, labels).scores).all()
    assert fit(SelectFScore(1), with_target, labels + 0.5).selected.tolist() == [6]


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, np.float16])
def test_dtypes_of_rows(dtype):
    rows, labels = CLASSES["digits"]
    given = (rows * 10).astype(dtype)
    tolerance = 1e-5 if given.dtype.itemsize < 8 else 1e-10
    expected = f_classif(given.astype(float), labels)[0]
    np.testing.assert_allclose(fit(SelectFScore(3), given, labels).scores, expected, rtol=tolerance)
    model = fit(SelectMutualInfo(3, bias_correction=False), given, labels)
    np.testing.assert_allclose(model.scores, [mutual_info_score(c, labels) for c in given.T], atol=1e-12)


def test_scores_far_from_zero():
    rows, labels = CLASSES["iris"]
    expected = f_classif(rows, labels)[0]
    np.testing.assert_allclose(fit(SelectFScore(3), rows + 1e8, labels).scores, expected, rtol=1e-6)
    np.testing.assert_allclose(
        fit(SelectCorrelation(3), rows + 1e8, rows[:, 0] + 1e8).scores,
        r_regression(rows, rows[:, 0]),
        rtol=1e-6,
    )


@pytest.mark.parametrize("method", FILTERS)
def test_invalid_parameters_and_data_are_refused(method):
    rows, labels = CLASSES["iris"]
    with pytest.raises(ParameterError, match="5 columns were requested, and the data has 4"):
        fit(method(5), rows, labels)
    for wrong, parameter in (({"k": -1}, "k"), ({"n_folds": 1}, "n_folds"), ({"task": "x"}, "task")):
        with pytest.raises(ParameterError) as caught:
            method(**wrong).check()
        assert caught.value.parameter == parameter
    for k in (2, "cv"):
        with pytest.raises(DataError, match="all labels are the same"):
            fit(method(k), rows, np.full(len(rows), "a"))
        with pytest.raises(DataError, match="the target is constant"):
            fit(method(k, task="regression"), rows, np.full(len(rows), 3))
    with pytest.raises(ParameterError, match="the labels are text"):
        fit(method(2, task="regression"), rows, np.full(len(rows), "a"))
    with pytest.raises(DataError, match="more than 3 different values"):
        fit(method(2, max_classes=3), rows, np.arange(len(rows)) % 4)


def test_columns_with_too_many_values_are_not_discrete():
    rng = np.random.default_rng(0)
    with pytest.raises(ParameterError, match="column 0 has more than 1,024 different values"):
        fit(SelectMutualInfo(1, discrete=True), rng.normal(size=(2000, 2)), rng.integers(0, 2, size=2000))
    for wrong, parameter in (({"n_bins": 1}, "n_bins"), ({"discrete": "yes"}, "discrete")):
        with pytest.raises(ParameterError) as caught:
            SelectMutualInfo(**wrong).check()
        assert caught.value.parameter == parameter
