"""Greedy selection finds the same columns as a plain loop over learners of scikit-learn on the same folds."""

from __future__ import annotations

from typing import Any

import numpy as np
import plain_selection as plain
import pytest
from sklearn.datasets import load_diabetes, load_iris, load_wine

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import in_memory
from streamdr.errors import DataError, ParameterError
from streamdr.methods.selection import SelectForward

FOLDS = 4


def fit(method, rows, labels, weights=None):
    (route,) = method.routes(MatrixSpec(rows.shape[0], rows.shape[1], rows.dtype, labels.dtype))
    return in_memory(route.method, rows, weights, labels)


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 8)) @ rng.normal(size=(8, 8)) + 3.0
    return rows, rows @ rng.normal(size=8) + 4 * rng.normal(size=200) + 100.0


def classes(n_classes, seed=1):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, size=240)
    rows = rng.normal(size=(240, 7)) @ rng.normal(size=(7, 7)) + 1.5 * rng.normal(size=(n_classes, 7))[labels]
    return rows, labels


REGRESSIONS: dict[str, tuple[SelectForward, dict[str, Any]]] = {
    "linear": (SelectForward(8, learner="linear", n_folds=FOLDS), {}),
    "ridge": (
        SelectForward(8, learner="ridge", alpha=30.0, n_folds=FOLDS, random_state=3),
        {"alpha": 30.0, "seed": 3},
    ),
    "squares": (
        SelectForward(8, learner="ridge", n_folds=FOLDS, scoring="neg_mean_squared_error"),
        {"alpha": 1.0, "scoring": "neg_mean_squared_error"},
    ),
}


@pytest.mark.parametrize("kind", REGRESSIONS)
def test_forward_equals_the_plain_loop_of_regressions(kind, numbers):
    method, settings = REGRESSIONS[kind]
    model = fit(method, *numbers)
    rows, target = numbers
    columns, scores = plain.forward(plain.regression(rows, target, FOLDS, **settings), 8, 8)
    assert model.selected.tolist() == columns
    np.testing.assert_allclose(model.path_fold_scores, scores, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(model.path_features, columns)
    np.testing.assert_array_equal(model.path_sizes, np.arange(1, 9))


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_forward_equals_the_plain_loop_of_discriminants(n_classes):
    rows, labels = classes(n_classes)
    model = fit(SelectForward(7, n_folds=FOLDS), rows, labels)
    columns, scores = plain.forward(plain.discriminant(rows, labels, FOLDS), 7, 7)
    assert model.selected.tolist() == columns
    np.testing.assert_allclose(model.path_fold_scores, scores, rtol=0, atol=1e-10)
    assert model.learner == "discriminant"


def test_backward_equals_the_plain_loop_of_regressions(numbers):
    model = fit(SelectForward(2, direction="backward", n_folds=FOLDS), *numbers)
    rows, target = numbers
    columns, scores = plain.backward(plain.regression(rows, target, FOLDS), 8, 2)
    assert model.selected.tolist() == columns
    np.testing.assert_allclose(model.path_fold_scores, scores, rtol=0, atol=1e-10)
    assert model.path_features[0] == -1
    np.testing.assert_array_equal(model.path_sizes, np.arange(8, 1, -1))


@pytest.mark.parametrize("n_classes", [2, 4, 6])
def test_backward_equals_the_plain_loop_of_discriminants(n_classes):
    rows, labels = classes(n_classes)
    model = fit(SelectForward(1, direction="backward", n_folds=FOLDS), rows, labels)
    columns, scores = plain.backward(plain.discriminant(rows, labels, FOLDS), 7, 1)
    assert model.selected.tolist() == columns
    np.testing.assert_allclose(model.path_fold_scores, scores, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_floating_equals_the_plain_loop(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(120, 7)) @ rng.normal(size=(7, 7))
    target = rows @ rng.normal(size=7) + 3 * rng.normal(size=120)
    model = fit(SelectForward(5, direction="floating", n_folds=3), rows, target)
    columns, steps = plain.floating(plain.regression(rows, target, 3), 7, 5)
    assert model.selected.tolist() == columns
    assert model.path_features.tolist() == steps
    rows, labels = classes(3, seed)
    model = fit(SelectForward(5, direction="floating", n_folds=3), rows, labels)
    columns, steps = plain.floating(plain.discriminant(rows, labels, 3), 7, 5)
    assert model.selected.tolist() == columns
    assert model.path_features.tolist() == steps


def test_floating_removes_columns():
    """The column that is best alone becomes redundant when two other columns are chosen."""
    rng = np.random.default_rng(4)
    a, b, noise = rng.normal(size=(3, 300))
    rows = np.column_stack([a + b + 0.9 * noise, a + 0.05 * rng.normal(size=300), b, rng.normal(size=300)])
    target = a + b + 0.01 * rng.normal(size=300)
    model = fit(SelectForward(3, direction="floating", n_folds=3), rows, target)
    assert not model.path_added.all()
    assert plain.floating(plain.regression(rows, target, 3), 4, 3)[1] == model.path_features.tolist()


@pytest.mark.parametrize("load", [load_diabetes, load_iris, load_wine])
def test_well_known_data_sets(load):
    rows, labels = load(return_X_y=True)
    k = 5 if rows.shape[1] > 5 else 4
    model = fit(SelectForward(k), rows, labels)
    score = (plain.regression if labels.dtype.kind == "f" else plain.discriminant)(rows, labels, 5)
    columns, scores = plain.forward(score, rows.shape[1], k)
    assert model.selected.tolist() == columns
    np.testing.assert_allclose(model.path_fold_scores, scores, rtol=0, atol=1e-9)
    alone = [score([column]).mean() for column in range(rows.shape[1])]
    np.testing.assert_allclose(model.scores, alone, rtol=0, atol=1e-9)


def test_k_by_cross_validation_is_the_best_of_the_path(numbers):
    rows, target = numbers
    for direction in ("forward", "backward", "floating"):
        model = fit(SelectForward("cv", direction=direction, n_folds=FOLDS), *numbers)
        best = model.path_scores.max()
        at_that_size = model.path_scores[model.path_sizes == model.n_outputs]
        assert at_that_size.max() == pytest.approx(best, abs=1e-9)
        score = plain.regression(rows, target, FOLDS)(sorted(model.selected)).mean()
        assert score == pytest.approx(best, abs=1e-10)


def test_ten_columns_are_the_default():
    rng = np.random.default_rng(0)
    rows, target = rng.normal(size=(80, 12)), rng.normal(size=80)
    assert fit(SelectForward(), rows, target).n_outputs == 10
    assert fit(SelectForward(), rows[:, :3], target).n_outputs == 3


def test_data_far_from_zero_and_in_single_precision(numbers):
    rows, target = numbers
    expected = fit(SelectForward(5), rows, target)
    far = fit(SelectForward(5), rows + 1e7, target + 1e9)
    assert far.selected.tolist() == expected.selected.tolist()
    np.testing.assert_allclose(far.path_fold_scores, expected.path_fold_scores, atol=1e-6)
    single = fit(SelectForward(5), rows.astype(np.float32), target)
    np.testing.assert_allclose(single.path_fold_scores, expected.path_fold_scores, atol=1e-4)
    double = fit(SelectForward(5, precision="double"), rows.astype(np.float32), target)
    again = fit(SelectForward(5), rows.astype(np.float32).astype(np.float64), target)
    np.testing.assert_allclose(double.path_fold_scores, again.path_fold_scores, atol=1e-12)


def test_units_do_not_matter(numbers):
    rows, target = numbers
    for direction in ("forward", "backward", "floating"):
        method = SelectForward(4, direction=direction, scoring="neg_mean_squared_error")
        expected = fit(method, rows, target)
        tiny = fit(method, 1e-9 * rows, 1e-9 * target)
        assert tiny.selected.tolist() == expected.selected.tolist()
        np.testing.assert_allclose(tiny.path_fold_scores, 1e-18 * expected.path_fold_scores, rtol=1e-7)


def test_classes_far_apart_keep_their_digits():
    rows, labels = classes(3)
    far = rows + 1e7 * np.arange(7)
    expected = plain.forward(plain.discriminant(rows, labels, 5), 7, 7)
    model = fit(SelectForward(7), far, labels)
    assert model.selected.tolist() == expected[0]
    np.testing.assert_allclose(model.path_fold_scores, expected[1], atol=1e-6)


def test_weights_equal_those_of_scikit_learn(numbers):
    rows, target = numbers
    weights = np.random.default_rng(2).integers(0, 3, size=len(rows)).astype(float)
    scores = []
    for column in range(8):
        found = []
        for fold in range(FOLDS):
            held = plain.streamdr.folds(len(rows), FOLDS) == fold
            learner = plain.LinearRegression().fit(
                rows[~held, [column]][:, None], target[~held], weights[~held]
            )
            found.append(learner.score(rows[held, [column]][:, None], target[held], weights[held]))
        scores.append(np.mean(found))
    model = fit(SelectForward(3, n_folds=FOLDS), rows, target, weights)
    np.testing.assert_allclose(model.scores, scores, atol=1e-10)


def test_text_labels_are_classes():
    rows, labels = classes(3)
    names = np.array(["one", "three", "two"])[labels]
    model = fit(SelectForward(3), rows, names)
    assert model.classes == ["one", "three", "two"]
    assert model.selected.tolist() == fit(SelectForward(3), rows, labels).selected.tolist()


# Collinear columns


def test_a_column_that_others_explain_adds_nothing(numbers):
    rows, target = numbers
    more = np.column_stack([rows, rows[:, 2], np.full(len(rows), 0.1), rows[:, 1] - 2 * rows[:, 5]])
    without_copies = fit(SelectForward(8, n_folds=FOLDS), rows, target)
    model = fit(SelectForward(11, n_folds=FOLDS), more, target)
    real = [column for column in model.selected if column < 8]
    assert len(set(model.selected)) == 11
    score = plain.regression(more, target, FOLDS)
    for size in (1, 4, 8, 9, 11):
        expected = score(model.selected[:size])
        np.testing.assert_allclose(model.path_fold_scores[size - 1], expected, atol=1e-9)
    assert real[0] == without_copies.selected[0]


def test_of_equal_columns_the_first_is_chosen(numbers):
    rows, target = numbers
    model = fit(SelectForward(3), np.column_stack([rows[:, ::-1], rows]), target)
    assert all(column < 8 for column in model.selected)


def test_backward_removes_redundant_columns(numbers):
    rows, target = numbers
    more = np.column_stack([rows, rows[:, 2], np.full(len(rows), 7.0)])
    model = fit(SelectForward(4, direction="backward", n_folds=FOLDS), more, target)
    score = plain.regression(more, target, FOLDS)
    left = set(range(10))
    for column, scores in zip(model.path_features, model.path_fold_scores, strict=True):
        left -= {int(column)}
        np.testing.assert_allclose(scores, score(sorted(left)), atol=1e-9)
    assert left == {*model.selected.tolist()}


def test_a_column_that_separates_the_classes_is_chosen_first():
    """Its discriminant is infinite; scikit-learn cannot compute it."""
    rows, labels = classes(3)
    model = fit(SelectForward(3), np.column_stack([rows, labels]), labels)
    assert model.selected[0] == 7
    np.testing.assert_allclose(model.path_fold_scores, 1.0, atol=1e-6)


def test_folds_without_rows_are_skipped():
    rng = np.random.default_rng(0)
    rows, target = rng.normal(size=(12, 3)), rng.normal(size=12)
    folds = plain.streamdr.folds(12, 9)
    nonempty = [fold for fold in range(9) if (folds == fold).any()]
    assert len(nonempty) < 9
    model = fit(SelectForward(1, n_folds=9, scoring="neg_mean_squared_error"), rows, target)
    assert model.path_fold_scores.shape == (1, len(nonempty))


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    rows, target = rng.normal(size=(20, 40)), rng.normal(size=20)
    model = fit(SelectForward(30, n_folds=2), rows, target)
    assert len(set(model.selected)) == 30
    assert np.isfinite(model.path_fold_scores).all()


# Invalid parameters and data


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"k": 0}, "k"),
        ({"k": 2.5}, "k"),
        ({"k": "best"}, "k"),
        ({"learner": "tree"}, "learner"),
        ({"direction": "sideways"}, "direction"),
        ({"alpha": -1.0}, "alpha"),
        ({"n_folds": 1}, "n_folds"),
        ({"scoring": "accuracy"}, "scoring"),
        ({"learner": "discriminant", "scoring": "r2"}, "scoring"),
        ({"learner": "ridge", "task": "classification"}, "learner"),
        ({"learner": "discriminant", "task": "regression"}, "learner"),
        ({"task": "ranking"}, "task"),
        ({"precision": "half"}, "precision"),
    ],
)
def test_invalid_parameters_are_refused(given: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        SelectForward(**given).check()
    assert caught.value.parameter == parameter


def test_data_that_cannot_be_fitted_are_refused(numbers):
    rows, target = numbers
    with pytest.raises(ParameterError, match="9 columns were requested, and the data has 8"):
        fit(SelectForward(9), rows, target)
    with pytest.raises(DataError, match="the target is constant: there is nothing to predict"):
        fit(SelectForward(2), rows, np.full(len(rows), 0.1))
    constant_in_fold = np.where(plain.streamdr.folds(len(rows), 5) == 3, 2.0, target)
    with pytest.raises(DataError, match="the target is constant in fold 3 of 5"):
        fit(SelectForward(2), rows, constant_in_fold)
    with pytest.raises(DataError, match="all labels are the same"):
        fit(SelectForward(2), rows, np.zeros(len(rows), int))
    single_row_class = (np.arange(len(rows)) == 17).astype(int)
    with pytest.raises(DataError, match="class 1 has no rows outside fold"):
        fit(SelectForward(2), rows, single_row_class)
    with pytest.raises(DataError, match="all rows are in one of 2 folds"):
        fit(SelectForward(2, n_folds=2), rows[:2], target[:2])
    with pytest.raises(ParameterError, match="the labels are text: use discriminant"):
        fit(SelectForward(2, learner="linear"), rows, np.where(target > 0, "yes", "no"))
    with pytest.raises(DataError, match="more than 200 different values"):
        fit(SelectForward(2), np.repeat(rows, 2, axis=0), np.arange(400))
