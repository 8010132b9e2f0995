"""Random parameters for every step, and rows that suit it: counts, genotypes, logged counts, sparse rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streamdr.core.method import Method

Rng = np.random.Generator
TYPES = ("f8", "f4", "f2", "i8", "i2", "u1")
SUITED = 0.7
"""The share of the cases in which rows suit the step. In the others they often are refused."""


def choice(rng: Rng, *options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def normalize_total(rng: Rng, data: Any) -> dict[str, Any]:
    return {
        "target_sum": choice(rng, None, None, 1.0, 1e4, 1e-3),
        "empty_rows": choice(rng, "keep", "refuse"),
    }


def log1p(rng: Rng, data: Any) -> dict[str, Any]:
    return {}


def clip(rng: Rng, data: Any) -> dict[str, Any]:
    low, high = sorted(float(x) for x in rng.normal(size=2) * choice(rng, 1.0, 100.0, 1e-3))
    return {
        "min": choice(rng, None, low, 0.0 if high > 0 else None, -1e300),
        "max": choice(rng, None, high, high, 1e300),
    }


def unit_norm(rng: Rng, data: Any) -> dict[str, Any]:
    return {"norm": choice(rng, "l2", "l1", "max")}


def select_columns(rng: Rng, data: Any) -> dict[str, Any]:
    def some() -> Any:
        d = data.rows.shape[1]
        first = int(rng.integers(d))
        stop = int(rng.integers(first + 1, d + 1))
        spans = (f"{first}:{stop}", f"{first - d}:", f":{stop}", f":{stop - d}" if stop < d else ":")
        numbers = [int(x) for x in rng.integers(-d, d, 3)]
        mask = rng.uniform(size=d) < 0.5
        return choice(
            rng, choice(rng, *spans), numbers, [choice(rng, *spans), numbers[0]], mask.tolist(), mask
        )

    return {"columns": choice(rng, None, some(), some()), "exclude": choice(rng, None, None, some())}


def standardise(rng: Rng, data: Any) -> dict[str, Any]:
    return {
        "with_mean": bool(rng.uniform() < 0.6),
        "with_std": bool(rng.uniform() < 0.8),
        "max_value": choice(rng, None, None, 0.5, 10.0),
        "ddof": choice(rng, 0, 1),
    }


def scale_genotypes(rng: Rng, data: Any) -> dict[str, Any]:
    return {
        "min_maf": choice(rng, 0.0, 0.0, 0.01, 0.1),
        "ploidy": choice(rng, 1, 2, 2, 2, 4),
        "scaling": choice(rng, "binomial", "patterson"),
    }


def select_variance(rng: Rng, data: Any) -> dict[str, Any]:
    return {
        "n_features": choice(rng, None, int(rng.integers(1, data.rows.shape[1] + 2))),
        "flavor": choice(rng, "variance", "seurat", "cell_ranger"),
        "min_variance": choice(rng, 0.0, 0.0, 0.1),
        "min_mean": choice(rng, 0.0125, -1.0),
        "max_mean": choice(rng, 3.0, 1e3),
        "min_disp": choice(rng, 0.5, -0.5),
        "max_disp": choice(rng, None, None, 2.0),
        "n_bins": choice(rng, 20, 5, 1),
    }


def bins(rng: Rng, data: Any) -> dict[str, Any]:
    return {
        "n_bins": choice(rng, 2, 3, 5, 10, 25, 256),
        "strategy": choice(rng, "quantile", "uniform"),
        "random_state": int(rng.integers(3)),
    }


STEPS: dict[str, Callable[[Rng, Any], dict[str, Any]]] = {
    "normalize_total": normalize_total,
    "log1p": log1p,
    "clip": clip,
    "unit_norm": unit_norm,
    "select_columns": select_columns,
    "standardise": standardise,
    "scale_genotypes": scale_genotypes,
    "select_variance": select_variance,
    "bin": bins,
}


def suit(rng: Rng, method: Method, data: Any) -> Any:
    """Return data that a step accepts, of the same shape, in most cases. Missing values stay missing."""
    if rng.uniform() < SUITED:
        data = _suited(rng, method, data)
    if rng.uniform() < 0.3:
        few = np.where(rng.uniform(size=data.rows.shape) < choice(rng, 0.5, 0.9), 0, data.rows)
        if rng.uniform() < 0.5:
            few[rng.uniform(size=len(few)) < 0.1] = 0
        return replace(data, rows=few.astype(data.rows.dtype), words=[*data.words, "many zeros"])
    return data


def _suited(rng: Rng, method: Any, data: Any) -> Any:
    shape, kind, words = data.rows.shape, np.dtype(choice(rng, *TYPES)), list(data.words)
    ploidy = getattr(method, "ploidy", None)
    if ploidy is not None:
        rows = rng.binomial(ploidy, rng.beta(0.5, 0.5, size=shape[1]), size=shape)
        words.append(f"genotypes of {kind.name}")
    elif method.tags.nonnegative or getattr(method, "flavor", "variance") != "variance":
        rows = rng.poisson(rng.gamma(0.5, choice(rng, 1, 20), size=shape[1]), size=shape)
        rows = np.minimum(rows * choice(rng, 1, 1, 3), 255)
        words.append(f"counts of {kind.name}")
        if getattr(method, "flavor", "variance") != "variance":
            rows, kind = np.log1p(rows), np.dtype(choice(rng, "f8", "f8", "f4"))
            words.append(f"logged in {kind.name}")
    else:
        return data
    rows = rows.astype(kind)
    if data.has_missing and kind.kind == "f":
        rows[np.isnan(data.rows)] = np.nan
    return replace(data, rows=rows, words=words)
