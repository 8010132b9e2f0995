"""The digest of a function identifies what it computes. A function that cannot be analysed has none."""

from __future__ import annotations

import functools
import json
import math
import random

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel

import streamdr
from streamdr.core.function_digest import UnidentifiedError, function_digest

SCALE = 2.0


def scaled(a, b):
    return SCALE * np.abs(a - b).sum()


def power(order, factor=1.0, *, root=True):
    def distance(a, b):
        total = factor * (np.abs(a - b) ** order).sum()
        return total ** (1 / order) if root else total

    return distance


def calling_itself(n):
    return 1 if n == 0 else n * calling_itself(n - 1)


def with_(source, **names):
    space = {"np": np, **names}
    exec(source, space)
    return space["f"]


SAME = {
    "a lambda written twice": lambda: lambda a, b: np.abs(a - b).sum(),
    "a closure": lambda: power(3, 2.0),
    "a partial function": lambda: functools.partial(np.linalg.norm, ord=3),
    "a function of numpy": lambda: np.dot,
    "a ufunc": lambda: np.hypot,
    "a function of scipy": lambda: cdist,
    "a function of scikit-learn": lambda: rbf_kernel,
    "a function with a helper": lambda: lambda a, b: scaled(a, b) + math.sqrt(2),
    "a function that calls itself": lambda: calling_itself,
    "an array within": lambda: (lambda w: lambda a, b: (w * (a - b) ** 2).sum())(np.arange(3.0)),
    "an import within": lambda: with_("def f(a, b):\n import numpy\n return numpy.dot(a, b)"),
}
DIFFERENT = [
    (lambda a, b: np.abs(a - b).sum(), lambda a, b: np.abs(a - b).max()),
    (lambda a, b: np.abs(a - b).sum() * 2, lambda a, b: np.abs(a - b).sum() * 3),
    (lambda a, b: np.abs(a - b).sum() * 2, lambda a, b: np.abs(a - b).sum() * 2.0),
    (lambda a, b: a @ b * True, lambda a, b: a @ b * 1),
    (lambda a, b: a @ b * 0.0, lambda a, b: a @ b * -0.0),
    (power(1), power(2)),
    (power(2, 1.0), power(2, 2.0)),
    (power(2, root=True), power(2, root=False)),
    (lambda a, b, order=1: np.sum(a - b) ** order, lambda a, b, order=2: np.sum(a - b) ** order),
    (lambda a, b, *, order=1: np.sum(a - b) ** order, lambda a, b, *, order=2: np.sum(a - b) ** order),
    (functools.partial(np.linalg.norm, ord=1), functools.partial(np.linalg.norm, ord=2)),
    (np.add, np.subtract),
    (with_("f = lambda a, b: g(a)", g=np.sum), with_("f = lambda a, b: g(a)", g=np.max)),
    (with_("f = lambda a, b: w * a", w=[1, 2]), with_("f = lambda a, b: w * a", w=[2, 1])),
    (with_("f = lambda a, b: w @ a", w=np.eye(2)), with_("f = lambda a, b: w @ a", w=np.eye(2) * 2)),
    (with_("f = lambda a, b: w @ a", w=np.eye(2)), with_("f = lambda a, b: w @ a", w=np.eye(2, dtype="f4"))),
    (with_("f = lambda a, b: a if {1, 2} else b"), with_("f = lambda a, b: a if {1, 3} else b")),
    (with_("f = lambda a, b: (lambda: k)() * a", k=1), with_("f = lambda a, b: (lambda: k)() * a", k=2)),
    (with_("f = lambda a, b: abs(a)"), with_("f = lambda a, b: abs(a)", abs=np.negative)),
]


class Callable:
    def __init__(self, order):
        self.order = order

    def __call__(self, a, b):
        return (np.abs(a - b) ** self.order).sum()

    def distance(self, a, b):
        return self(a, b)


def counting():
    calls = 0

    def count(a, b):
        nonlocal calls
        calls += 1
        return calls

    return count


UNIDENTIFIED = {
    "an object": Callable(1),
    "a method of an object": Callable(1).distance,
    "a function of an object": (lambda model: lambda a, b: model(a, b))(Callable(2)),
    "a package that is not trusted": lambda a, b: json.loads("1") * a,
    "an import of a package that is not trusted": with_("def f(a, b):\n import json\n return json"),
    "a random generator": (lambda rng: lambda a, b: rng.normal())(np.random.default_rng(0)),
    "a name that is evaluated": lambda a, b: eval("SCALE") * a,
    "a count of its calls": counting(),
    "a global that it sets": with_("def f(a, b):\n global n\n n = 1\n return n"),
    "an array of objects": (lambda w: lambda a, b: w)(np.array([None])),
    "a module of randomness": lambda a, b: random.random(),
    "a class": lambda a, b: Callable(2)(a, b),
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_the_same_function_has_the_same_digest_every_time(make):
    assert function_digest(make()) == function_digest(make())


@pytest.mark.parametrize("pair", DIFFERENT, ids=range(len(DIFFERENT)))
def test_different_functions_have_different_digests(pair):
    one, other = pair
    assert function_digest(one) != function_digest(other)


@pytest.mark.parametrize("function", UNIDENTIFIED.values(), ids=UNIDENTIFIED)
def test_a_function_that_cannot_be_analysed_has_no_digest(function):
    with pytest.raises(UnidentifiedError):
        function_digest(function)


def test_a_global_that_changes_changes_the_digest(monkeypatch):
    before = function_digest(scaled)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert function_digest(scaled) != before


def test_a_list_that_contains_itself_has_a_digest():
    loop: list[object] = [1]
    loop.append(loop)
    assert function_digest(lambda a, b: loop) == function_digest(lambda a, b: loop)


ROWS = np.random.default_rng(3).normal(size=(60, 4))
FUNCTIONS = {
    "classical_mds": lambda f: streamdr.ClassicalMDS(2, metric=f, solver="krylov"),
    "landmark_mds": lambda f: streamdr.LandmarkMDS(2, metric=f, n_landmarks=20),
    "metric_mds": lambda f: streamdr.MetricMDS(2, metric=f, max_iter=3),
    "kernel_pca": lambda f: streamdr.KernelPCA(2, kernel=f, n_landmarks=20),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_ledger_never_confuses_two_functions(name, tmp_path):
    make = FUNCTIONS[name]
    if name == "kernel_pca":
        pair = [lambda a, b: np.exp(-np.abs(a - b).sum()), lambda a, b: np.exp(-((a - b) ** 2).sum())]
    else:
        pair = [lambda a, b: np.abs(a - b).sum(), lambda a, b: np.sqrt(((a - b) ** 2).sum())]
    alone = [make(function).fit_transform(ROWS) for function in pair]
    with streamdr.execution(ledger=tmp_path / "ledger"):
        together = [make(function).fit_transform(ROWS) for function in pair + pair]
    for got, want in zip(together, alone + alone, strict=True):
        np.testing.assert_array_equal(got, want)


def test_only_passes_with_identified_functions_are_stored_in_the_ledger(tmp_path):
    identified, unidentified = (lambda a, b: np.abs(a - b).sum()), Callable(1)

    def entries(metric):
        folder = tmp_path / "ledger"
        before = set(folder.glob("*.npz"))
        with streamdr.execution(ledger=folder):
            streamdr.ClassicalMDS(2, metric=metric, solver="krylov").fit(ROWS)
        return len(set(folder.glob("*.npz")) - before)

    first = entries(identified)
    assert first > 0
    assert entries(identified) == 0, "all passes are in the ledger"
    assert entries(unidentified) < first
    with streamdr.execution(ledger=tmp_path / "ledger"):
        for order in (1, 2):
            fitted = streamdr.ClassicalMDS(2, metric=Callable(order), solver="krylov").fit(ROWS)
            with streamdr.execution(ledger=None):
                alone = streamdr.ClassicalMDS(2, metric=Callable(order), solver="krylov").fit(ROWS)
            np.testing.assert_array_equal(fitted.eigenvalues_, alone.eigenvalues_)
