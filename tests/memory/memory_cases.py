"""Every method on data of every shape: narrow types, missing values, chunks in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory_stores import STORES

from streamdr.core.method import Method
from streamdr.core.row_outputs import RowKind
from streamdr.methods import METHODS
from streamdr.methods.chain import Chain, chain_of


def built(method: str, parameters: Mapping[str, Any]) -> Method:
    """Return a method, or the chain of the methods under `steps`."""
    if method == Chain.name:
        steps = [{**step} for step in parameters["steps"]]
        return chain_of([built(step.pop("name"), step) for step in steps])
    return METHODS[method](**parameters)


@dataclass(frozen=True)
class Case:
    """One method, with parameters, on one store."""

    name: str
    store: str
    method: str
    parameters: dict[str, Any] = field(default_factory=dict)
    labels: str | None = None
    weights: str | None = None
    quick: bool = False
    """Whether it runs by default, with the least limit."""
    limit: int = 0
    """The limit in MiB, where it is chosen for the case."""
    workers: int = 2
    planned_workers: int | None = None
    """The number of workers that the plan must find room for."""
    outputs: tuple[RowKind, ...] = ("embedding",)
    """The outputs that are written where the limit is chosen for the case; all otherwise."""

    @property
    def shape(self) -> str:
        """Tall, wide, or both."""
        n_rows, n_cols = STORES[self.store].shape
        return "tall" if n_rows >= 16 * n_cols else "wide" if n_cols >= 4 * n_rows else "both"


STORED = {"metric": "precomputed"}
SCALED = [{"name": "standardise"}, {"name": "clip", "min": -3.0, "max": 3.0}]
COUNTED = [{"name": "normalize_total", "target_sum": 1e4}, {"name": "log1p"}]
PCA = {"name": "pca", "n_components": 5}
KRYLOV = {**PCA, "solver": "krylov", "max_passes": 3, "tol": 0.0}
ALLELES = {"name": "scale_genotypes", "ploidy": 127}
CASES = [
    Case("pca tall", "tall", "pca", {"n_components": 10}),
    Case("pca tall bytes", "tall bytes", "pca", {"n_components": 10}),
    Case("pca tall columns", "tall columns", "pca", {"n_components": 0.9, "scale": True}),
    Case("pca tall doubles weights", "tall doubles", "pca", {"n_components": 10}, weights="classes"),
    Case("pca wide", "wide", "pca", {"n_components": 5}),
    Case("pca wide bytes", "wide bytes", "pca", {"n_components": 5}, quick=True),
    Case("pca wide land", "wide land", "pca", {"n_components": 5}, quick=True),
    Case(
        "pca both land krylov",
        "both land",
        "pca",
        {"n_components": 5, "solver": "krylov", "max_passes": 3, "tol": 0.0},
    ),
    Case(
        "pca both shorts krylov",
        "both shorts",
        "pca",
        {"n_components": 5, "solver": "krylov", "max_passes": 3, "tol": 0.0, "scale": True},
    ),
    Case("ppca tall land", "tall land", "ppca", {"n_components": 5}),
    Case("pca wide rows double", "wide rows", "pca", {"n_components": 5, "precision": "double"}),
    Case("pca wide rows all", "wide rows", "pca", {}),
    Case("pca both covariance", "both", "pca", {"n_components": 5, "solver": "covariance"}),
    Case(
        "pca both krylov",
        "both bytes",
        "pca",
        {"n_components": 5, "solver": "krylov", "max_passes": 3, "tol": 0.0},
    ),
    Case(
        "pca wide krylov",
        "wide bytes",
        "pca",
        {"n_components": 5, "solver": "krylov", "max_passes": 3, "tol": 0.0},
    ),
    Case("pca both shorts", "both shorts", "pca", {"n_components": 5}),
    Case("pca tall shards", "tall shards", "pca", {"n_components": 5}),
    Case("ppca both shards", "both shards", "ppca", {"n_components": 5, "method": "em", "max_iter": 2}),
    Case(
        "pca both double",
        "both shorts",
        "pca",
        {"n_components": 5, "precision": "double", "solver": "covariance"},
    ),
    Case("ppca tall", "tall", "ppca", {"n_components": 5}),
    Case("ppca tall missing", "tall missing", "ppca", {"n_components": 5, "max_iter": 2}),
    Case("ppca tall byte missing", "tall byte missing", "ppca", {"n_components": 5, "max_iter": 2}),
    Case(
        "ppca tall missing list",
        "tall missing",
        "ppca",
        {"n_components": [2, 10], "max_iter": 2, "holdout": 0.1},
    ),
    Case("ppca wide missing", "wide missing", "ppca", {"n_components": 5, "max_iter": 2}, quick=True),
    Case("ppca wide byte missing", "wide byte missing", "ppca", {"n_components": 5, "max_iter": 2}),
    Case(
        "ppca wide minibatch",
        "wide byte missing",
        "ppca",
        {"n_components": 5, "max_iter": 2, "method": "minibatch"},
    ),
    Case("ppca both missing", "both missing", "ppca", {"n_components": 10, "max_iter": 2}),
    Case(
        "ppca both half missing",
        "both half missing",
        "ppca",
        {"n_components": 10, "max_iter": 2, "method": "minibatch", "holdout": 0.1},
    ),
    Case(
        "mixture tall missing",
        "tall missing",
        "ppca_mixture",
        {"n_components": 3, "n_mixtures": 2, "max_iter": 2},
    ),
    Case(
        "mixture tall byte missing",
        "tall byte missing",
        "ppca_mixture",
        {"n_components": 3, "n_mixtures": 3, "max_iter": 2},
    ),
    Case(
        "mixture wide byte missing",
        "wide byte missing",
        "ppca_mixture",
        {"n_components": 3, "n_mixtures": 2, "max_iter": 2},
    ),
    Case(
        "mixture both missing",
        "both missing",
        "ppca_mixture",
        {"n_components": 3, "n_mixtures": 2, "max_iter": 2},
    ),
    Case(
        "kernel tall nystrom",
        "tall bytes",
        "kernel_pca",
        {"n_components": 5, "n_landmarks": 400, "approximation": "nystrom"},
    ),
    Case(
        "kernel tall random",
        "tall columns",
        "kernel_pca",
        {"n_components": 5, "n_landmarks": 400, "approximation": "random_features"},
    ),
    Case(
        "kernel tall double",
        "tall doubles",
        "kernel_pca",
        {"n_components": 5, "n_landmarks": 300, "approximation": "nystrom"},
    ),
    Case(
        "kernel tall search",
        "tall",
        "kernel_pca",
        {
            "n_components": 5,
            "n_landmarks": 200,
            "kernel": {"search": {"rbf": {"gamma": [0.001, 0.01]}, "linear": {}}, "folds": 3},
        },
    ),
    Case(
        "kernel wide nystrom",
        "wide bytes",
        "kernel_pca",
        {"n_components": 5, "n_landmarks": 200, "approximation": "nystrom"},
    ),
    Case("kernel wide exact", "wide rows", "kernel_pca", {"n_components": 5, "approximation": "exact"}),
    Case(
        "kernel both nystrom",
        "both bytes",
        "kernel_pca",
        {"n_components": 5, "n_landmarks": 500, "approximation": "nystrom"},
    ),
    Case(
        "kernel both inverse",
        "both",
        "kernel_pca",
        {
            "n_components": 5,
            "n_landmarks": 300,
            "approximation": "nystrom",
            "kernel": "rbf",
            "fit_inverse_transform": True,
        },
    ),
    Case(
        "kernel both laplacian",
        "few bytes",
        "kernel_pca",
        {"n_components": 5, "n_landmarks": 300, "approximation": "nystrom", "kernel": "laplacian"},
    ),
    Case("kernel few exact", "few", "kernel_pca", {"n_components": 5, "approximation": "exact"}, quick=True),
    Case(
        "kernel few sigmoid",
        "few bytes",
        "kernel_pca",
        {"n_components": 5, "approximation": "exact", "kernel": "sigmoid", "gamma": 1e-8},
    ),
    Case(
        "kernel precomputed",
        "products",
        "kernel_pca",
        {"n_components": 3, "approximation": "exact", "kernel": "precomputed"},
    ),
    Case("sparse tall", "tall bytes", "sparse_kernel_pca", {"n_components": 5}),
    Case("sparse wide", "wide bytes", "sparse_kernel_pca", {"n_components": 5}),
    Case("sparse both", "both shorts", "sparse_kernel_pca", {"n_components": 5}),
    Case("lda tall bytes", "tall bytes", "lda", {}, labels="classes"),
    Case(
        "lda tall columns auto",
        "tall columns",
        "lda",
        {"shrinkage": "auto", "max_classes": 10},
        labels="classes",
    ),
    Case("lda both", "both bytes", "lda", {"shrinkage": 0.1}, labels="classes"),
    Case(
        "lda both shorts", "both shorts", "lda", {"shrinkage": 0.1, "precision": "double"}, labels="classes"
    ),
    Case("lda wide", "wide few", "lda", {"shrinkage": 0.1}, labels="classes"),
    Case("mutual info tall bytes", "tall bytes", "select_mutual_info", {"k": 5}, labels="classes"),
    Case("mutual info tall numbers", "tall columns", "select_mutual_info", {"k": 5}, labels="numbers"),
    Case(
        "mutual info wide", "wide bytes", "select_mutual_info", {"k": 5, "max_classes": 10}, labels="classes"
    ),
    Case(
        "mutual info both cv", "few", "select_mutual_info", {"k": "cv", "max_classes": 10}, labels="classes"
    ),
    Case("mutual info both", "both bytes", "select_mutual_info", {"k": 50}, labels="numbers"),
    Case("f score tall bytes", "tall bytes", "select_f_score", {"k": 5}, labels="classes"),
    Case("f score wide", "wide bytes", "select_f_score", {"k": 5000, "max_classes": 10}, labels="classes"),
    Case("f score both", "both shorts", "select_f_score", {"k": 500}, labels="numbers"),
    Case("f score cv", "few", "select_f_score", {"k": "cv"}, labels="numbers"),
    Case("correlation tall", "tall columns", "select_correlation", {"k": 5}, labels="numbers"),
    Case("correlation wide", "wide rows", "select_correlation", {"k": 50}, labels="numbers"),
    Case(
        "correlation both",
        "both bytes",
        "select_correlation",
        {"k": 50, "precision": "double"},
        labels="numbers",
    ),
    Case("forward tall bytes", "tall bytes", "select_forward", {"k": 5}, labels="numbers"),
    Case(
        "forward tall classes",
        "tall columns",
        "select_forward",
        {"k": 3, "max_classes": 10},
        labels="classes",
    ),
    Case("forward both", "few", "select_forward", {"k": 3}, labels="numbers"),
    Case("forward wide", "wide few", "select_forward", {"k": 3, "n_folds": 2}, labels="numbers"),
    Case("classical tall bytes", "tall bytes", "classical_mds"),
    Case("classical both", "both bytes", "classical_mds", quick=True),
    Case("classical both shorts", "both shorts", "classical_mds"),
    Case("classical few exact", "few", "classical_mds", {"solver": "exact", "metric": "cityblock"}),
    Case("classical wide exact", "few wide", "classical_mds", {"solver": "exact", "metric": "cosine"}),
    Case(
        "classical wide krylov",
        "few wide",
        "classical_mds",
        {"solver": "krylov", "max_passes": 3, "metric": "cosine"},
    ),
    Case("classical bytes krylov", "few bytes", "classical_mds", {"solver": "krylov", "max_passes": 3}),
    Case("classical distances exact", "distances", "classical_mds", {**STORED, "solver": "exact"}),
    Case(
        "classical distances krylov",
        "many distances",
        "classical_mds",
        {**STORED, "solver": "krylov", "max_passes": 3},
    ),
    Case(
        "classical distance bytes krylov",
        "distance bytes",
        "classical_mds",
        {**STORED, "solver": "krylov", "max_passes": 3},
    ),
    Case("landmark tall bytes", "tall bytes", "landmark_mds"),
    Case("landmark both", "both bytes", "landmark_mds", quick=True),
    Case("landmark both shorts", "both shorts", "landmark_mds", {"metric": "cosine"}),
    Case("landmark wide", "wide bytes", "landmark_mds", {"n_landmarks": 200}),
    Case("landmark distances", "many distances", "landmark_mds", {**STORED}),
    Case("landmark distance bytes", "distance bytes", "landmark_mds", {**STORED}),
    Case("metric few", "few tall", "metric_mds", {"max_iter": 3}),
    Case(
        "metric few memory",
        "few bytes",
        "metric_mds",
        {"max_iter": 3, "algorithm": "smacof", "storage": "memory"},
    ),
    Case(
        "metric few stream",
        "few bytes",
        "metric_mds",
        {"max_iter": 2, "algorithm": "smacof", "storage": "stream"},
    ),
    Case("metric wide", "few wide", "metric_mds", {"max_iter": 2, "algorithm": "smacof"}),
    Case("metric both stochastic", "both bytes", "metric_mds", {"algorithm": "stochastic", "n_epochs": 2}),
    Case(
        "metric distances memory",
        "distances",
        "metric_mds",
        {**STORED, "max_iter": 3, "algorithm": "smacof", "storage": "memory"},
    ),
    Case(
        "metric distances stream",
        "many distances",
        "metric_mds",
        {**STORED, "max_iter": 1, "algorithm": "smacof", "storage": "stream"},
    ),
    Case(
        "metric distances stochastic",
        "distance bytes",
        "metric_mds",
        {**STORED, "algorithm": "stochastic", "n_epochs": 2},
    ),
    Case("nonmetric few", "few tall", "nonmetric_mds", {"max_iter": 2, "n_init": 1}),
    Case("nonmetric wide", "few wide", "nonmetric_mds", {"max_iter": 2, "n_init": 2}),
    Case(
        "nonmetric distances memory",
        "distances",
        "nonmetric_mds",
        {**STORED, "max_iter": 2, "n_init": 1, "storage": "memory"},
    ),
    Case(
        "nonmetric distance bytes stream",
        "distance bytes",
        "nonmetric_mds",
        {**STORED, "max_iter": 1, "n_init": 1, "storage": "stream"},
    ),
    Case("som tall", "tall", "som", {"n_epochs": 2}),
    Case(
        "som tall bytes large double",
        "tall bytes",
        "som",
        {"height": 30, "width": 40, "n_epochs": 1, "precision": "double"},
    ),
    Case("som tall columns weights", "tall columns", "som", {"n_epochs": 1}, weights="classes"),
    Case("som wide", "wide bytes", "som", {"height": 6, "width": 6, "n_epochs": 2}),
    Case("som wide rows random", "wide rows", "som", {"height": 2, "n_epochs": 1, "init": "random"}),
    Case(
        "som both",
        "both bytes",
        "som",
        {"height": 8, "width": 8, "n_epochs": 2, "topology": "hexagonal", "toroidal": True},
        quick=True,
    ),
    Case("som both shorts bubble", "both shorts", "som", {"n_epochs": 1, "neighborhood": "bubble"}),
    Case("chain tall", "tall", Chain.name, {"steps": [*SCALED, {"name": "pca", "n_components": 10}]}),
    Case("chain tall bytes", "tall bytes", Chain.name, {"steps": [*COUNTED, PCA]}),
    Case("chain both bytes", "both bytes", Chain.name, {"steps": [*COUNTED, *SCALED, PCA]}, quick=True),
    Case("chain wide krylov", "wide byte missing", Chain.name, {"steps": [ALLELES, KRYLOV]}),
    Case("chain both krylov", "both bytes", Chain.name, {"steps": [*COUNTED, KRYLOV]}),
    Case("chain both classes", "both bytes", Chain.name, {"steps": [PCA, {"name": "lda"}]}, labels="classes"),
    Case("chain wide bytes", "wide bytes", Chain.name, {"steps": [*SCALED, PCA]}),
    Case("normalize total tall bytes", "tall bytes", "normalize_total"),
    Case("normalize total wide", "wide bytes", "normalize_total", {"target_sum": 1e4, "empty_rows": "keep"}),
    Case("normalize total both", "both bytes", "normalize_total"),
    Case("log1p tall bytes", "tall bytes", "log1p"),
    Case("log1p wide", "wide bytes", "log1p"),
    Case("log1p both", "both bytes", "log1p"),
    Case("clip tall doubles", "tall doubles", "clip", {"max": 1.0}),
    Case("clip wide", "wide missing", "clip", {"min": -1.0}),
    Case("clip both", "both shorts", "clip", {"max": 1.0}),
    Case("unit norm tall columns", "tall columns", "unit_norm"),
    Case("unit norm wide rows", "wide rows", "unit_norm", {"norm": "l1"}),
    Case("unit norm both", "both", "unit_norm", {"norm": "max"}),
    Case("standardise tall missing", "tall missing", "standardise", {"max_value": 2.0}),
    Case("standardise wide bytes", "wide bytes", "standardise"),
    Case("standardise both", "both shorts", "standardise", {"with_mean": False}),
    Case("select columns tall", "tall columns", "select_columns", {"columns": [0, 7, -1]}),
    Case("select columns wide", "wide bytes", "select_columns", {"exclude": [7]}),
    Case("select columns both", "both shorts", "select_columns", {"columns": ["0:1000", "2000:"]}),
    Case("genotypes tall", "tall byte missing", "scale_genotypes", {"ploidy": 127, "min_maf": 0.01}),
    Case("genotypes wide", "wide byte missing", "scale_genotypes", {"ploidy": 127}, quick=True),
    Case("genotypes both", "both bytes", "scale_genotypes", {"ploidy": 127}),
    Case("select variance tall", "tall columns", "select_variance", {"n_features": 100}),
    Case("select variance wide", "wide bytes", "select_variance", {"n_features": 2000}),
    Case("select variance both", "both", "select_variance", {"n_features": 500, "flavor": "seurat"}),
    Case("bin tall bytes", "tall bytes", "bin"),
    Case("bin wide", "wide missing", "bin", {"n_bins": 10, "strategy": "uniform"}),
    Case("bin both", "both shorts", "bin", {"n_bins": 64}),
]
