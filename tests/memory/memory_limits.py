"""Cases with a limit each, a little above the plan. They run by default, in a fresh process each."""

from __future__ import annotations

from typing import Any

from memory_cases import STORED, Case

_PCA = {"n_components": 10, "max_passes": 3, "tol": 0.0}
_PPCA = {"tol": 0.0, "max_iter": 2}
_KERNEL: dict[str, Any] = {"n_components": 5}
_NYSTROM = {**_KERNEL, "approximation": "nystrom"}
_GRID = {"rbf": {"gamma": [0.001, 0.01, 0.1]}, "laplacian": {"gamma": [0.01]}, "linear": {}, "cosine": {}}


def _pca(name: str, store: str, solver: str, limit: int, workers: int = 2) -> Case:
    return Case(f"pca {name}", store, "pca", {**_PCA, "solver": solver}, limit=limit, workers=workers)


def _ppca(name: str, store: str, limit: int, workers: int = 2, **parameters: Any) -> Case:
    return Case(
        f"ppca {name}",
        store,
        "ppca",
        {**_PPCA, **parameters},
        limit=limit,
        workers=workers,
        planned_workers=workers,
    )


SLOW = (
    *("pca tall, roomy", "pca four times as tall", "pca square chunks krylov", "pca small chunks"),
    *("pca four times as wide, roomy", "pca sparse wide", "pca sparse by columns"),
    *("ppca several", "ppca auto", "ppca large chunks", "ppca wide"),
    *("nystrom double", "random features", "exact", "classical of few points", "metric of few points"),
    *("nonmetric of few points", "nonmetric of distances", "forward linear", "map, bytes", "map, wide"),
    "mutual information, regression",
)
"""Cases that a case by default resembles: the same accumulators on other shapes."""
LIMITED = [
    _pca("tall", "large tall", "covariance", 260),
    _pca("tall, roomy", "large tall", "covariance", 500),
    _pca("four times as tall", "four times as tall", "covariance", 260),
    _pca("tall krylov", "large tall", "krylov", 300),
    _pca("square chunks", "square chunks", "covariance", 350),
    _pca("square chunks krylov", "square chunks", "krylov", 400, workers=3),
    _pca("small chunks", "small chunks", "covariance", 300, workers=4),
    _pca("large chunks", "large chunks", "covariance", 600),
    _pca("wide", "wide", "gram", 300),
    _pca("four times as wide", "four times as wide", "gram", 400),
    _pca("four times as wide, roomy", "four times as wide", "gram", 900),
    _pca("sparse wide", "sparse wide", "krylov", 500),
    _pca("sparse", "sparse both", "covariance", 750),
    _pca("sparse krylov", "sparse both", "krylov", 450),
    _pca("sparse by columns", "sparse columns", "covariance", 800),
    _ppca("tall", "large tall missing", 350, n_components=10, method="em"),
    _ppca("several", "large tall missing", 450, n_components=[2, 5, 10], method="em", holdout=0.1),
    _ppca("auto", "large tall missing", 400, n_components=10),
    _ppca("large chunks", "large chunks missing", 450, n_components=10, method="minibatch"),
    _ppca("many features", "many features missing", 650, n_components=20, method="em"),
    _ppca("wide", "less wide missing", 600, workers=1, n_components=5, method="em"),
    _ppca("wide minibatch", "less wide missing", 1000, n_components=[2, 3], method="minibatch", holdout=0.1),
    Case(
        "nystrom",
        "noise",
        "kernel_pca",
        {**_NYSTROM, "n_landmarks": 600},
        limit=450,
        outputs=("embedding", "denoised"),
    ),
    Case(
        "nystrom double",
        "64 columns",
        "kernel_pca",
        {**_NYSTROM, "n_landmarks": 400, "precision": "double"},
        limit=450,
    ),
    Case(
        "kernel search",
        "64 columns",
        "kernel_pca",
        {**_KERNEL, "n_landmarks": 200, "kernel": {"search": _GRID, "folds": 5}},
        limit=400,
    ),
    Case(
        "random features",
        "64 columns",
        "kernel_pca",
        {**_KERNEL, "n_landmarks": 500, "approximation": "random_features"},
        limit=400,
    ),
    Case("exact", "few 64 columns", "kernel_pca", {**_KERNEL, "approximation": "exact"}, limit=350),
    Case(
        "exact, not definite",
        "more 64 columns",
        "kernel_pca",
        {**_KERNEL, "approximation": "exact", "kernel": "sigmoid"},
        limit=750,
    ),
    Case(
        "exact, precomputed",
        "products",
        "kernel_pca",
        {"n_components": 3, "approximation": "exact", "kernel": "precomputed"},
        limit=900,
    ),
    Case(
        "nystrom wide",
        "3000 columns",
        "kernel_pca",
        {**_NYSTROM, "n_landmarks": 300},
        limit=750,
        outputs=("embedding", "denoised"),
    ),
    Case("sparse", "64 columns", "sparse_kernel_pca", _KERNEL, limit=350),
    Case("classical of points", "32 columns", "classical_mds", limit=300),
    Case(
        "classical of few points",
        "few 16 columns",
        "classical_mds",
        {"solver": "exact", "metric": "cityblock"},
        limit=600,
    ),
    Case(
        "classical of distances",
        "distances beyond the limit",
        "classical_mds",
        {**STORED, "max_passes": 2},
        limit=520,
    ),
    Case(
        "landmarks of points",
        "32 columns",
        "landmark_mds",
        {"n_landmarks": 400, "metric": "cosine"},
        limit=400,
    ),
    Case(
        "landmarks of distances",
        "distances beyond the limit",
        "landmark_mds",
        {**STORED, "n_landmarks": 300},
        limit=520,
    ),
    Case("metric of few points", "few 16 columns", "metric_mds", {"max_iter": 5}, limit=600),
    Case(
        "metric of distances",
        "distances beyond the limit",
        "metric_mds",
        {**STORED, "max_iter": 1},
        limit=520,
    ),
    Case("stochastic of points", "16 columns", "metric_mds", {"n_epochs": 2}, limit=520),
    Case(
        "stochastic of distances",
        "few distances",
        "metric_mds",
        {**STORED, "algorithm": "stochastic", "n_epochs": 2},
        limit=400,
    ),
    Case(
        "nonmetric of few points",
        "few 16 columns",
        "nonmetric_mds",
        {"max_iter": 3, "n_init": 2},
        limit=900,
    ),
    Case(
        "nonmetric streamed",
        "few distances",
        "nonmetric_mds",
        {**STORED, "max_iter": 2, "n_init": 1},
        limit=290,
    ),
    Case(
        "nonmetric of distances",
        "distances beyond the limit",
        "nonmetric_mds",
        {**STORED, "max_iter": 1, "n_init": 1},
        limit=520,
    ),
    Case("forward", "200 columns", "select_forward", {"k": 5}, labels="classes", limit=340),
    Case(
        "forward linear",
        "200 columns",
        "select_forward",
        {"k": 5, "learner": "linear"},
        labels="classes",
        limit=300,
    ),
    Case("f score", "200 columns", "select_f_score", {"k": 5}, labels="classes", limit=280),
    Case("correlation", "200 columns", "select_correlation", {"k": 5}, labels="classes", limit=280),
    Case("mutual information", "200 columns", "select_mutual_info", {"k": 5}, labels="classes", limit=480),
    Case(
        "mutual information, regression",
        "200 columns",
        "select_mutual_info",
        {"k": 5, "task": "regression"},
        labels="classes",
        limit=480,
    ),
    Case("discriminant", "200 columns", "lda", labels="classes", limit=300),
    Case("mixture", "large tall missing", "ppca_mixture", {"n_components": 5, "max_iter": 2}, limit=450),
    Case("map", "100 columns", "som", {"n_epochs": 2}, limit=400),
    Case(
        "map, large",
        "100 columns",
        "som",
        {"height": 60, "width": 60, "precision": "double", "n_epochs": 2},
        limit=600,
    ),
    Case("map, bytes", "narrow bytes", "som", {"height": 30, "width": 30, "n_epochs": 2}, limit=400),
    Case("map, wide", "wide whole rows", "som", {"height": 6, "width": 6, "n_epochs": 2}, limit=800),
    Case("totals", "narrow bytes", "normalize_total", limit=250),
    Case("logarithms", "narrow bytes", "log1p", limit=250),
    Case("limits", "200 columns", "clip", {"max": 1.0}, limit=220),
    Case("norms", "200 columns", "unit_norm", limit=220),
    Case("columns", "200 columns", "select_columns", {"columns": ["0:50"]}, limit=260),
    Case("scaled", "200 columns", "standardise", limit=220),
    Case("genotypes", "narrow bytes", "scale_genotypes", {"ploidy": 127}, limit=240),
    Case("variances", "200 columns", "select_variance", {"n_features": 50}, limit=260),
    Case("bins", "200 columns", "bin", limit=480),
]
