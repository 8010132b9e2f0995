"""Reference results of steps for small data: plain numpy in double and extended precision, and in memory.

A row of weight w counts like w equal rows. What a rounding error could decide is not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

EPS = float(np.finfo(np.float64).eps)
LONG = np.longdouble
NEAR = 1e-9
"""Numbers that differ by less than this, relative to their size, may be ordered either way."""


class MustBeRefusedError(Exception):
    """The reference says that these rows are not for this step, and why."""


class MayBeRefusedError(MustBeRefusedError):
    """Rounding decides whether these rows are for this step; raised only if they were refused."""


def shares_of(data: Any, weights: Any) -> np.ndarray:
    return np.ones(len(data.rows)) if weights is None else np.asarray(weights, np.float64)


def precision(data: Any) -> float:
    """The rounding of a number in the type in which rows are mapped."""
    kind = data.rows.dtype
    single = kind.itemsize <= 2 or kind == np.float32
    return float(np.finfo(np.float32 if single else np.float64).eps)


def require_close(found: np.ndarray, expected: np.ndarray, allowed: Any, what: str = "rows") -> None:
    """Raise unless NaN are at the same places and the other values differ by at most `allowed`."""
    if found.shape != expected.shape:
        raise AssertionError(f"{what} of shape {found.shape} for {expected.shape}")
    missing = np.isnan(expected)
    if not np.array_equal(np.isnan(found), missing):
        raise AssertionError(f"{what}: {np.isnan(found).sum()} values are NaN, and {missing.sum()} are to be")
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(found.astype(LONG) - expected) - allowed
    wrong = ~missing & ~(error <= 0) & (found != expected)
    if wrong.any():
        place = tuple(int(each[0]) for each in np.nonzero(wrong))
        raise AssertionError(
            f"{what}: {found[place]!r} for {float(expected[place])!r} at {place}, {wrong.sum()} wrong"
        )


def normalize_total(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    """Rows over their totals. The target is the median of the positive totals."""
    rows = data.rows.astype(LONG)
    totals, sizes = rows.sum(axis=1), np.abs(rows).sum(axis=1)
    rounding = np.asarray(8 * rows.shape[1] * EPS * sizes, np.float64)
    if np.isnan(totals).any():
        raise MustBeRefusedError("missing values")
    if (totals < -rounding).any() or (method.empty_rows == "refuse" and (sizes == 0).any()):
        raise MustBeRefusedError("a negative total, or none")
    unsure = (np.abs(totals) <= rounding) & (sizes > 0)
    counted = (totals > 0) & (shares > 0)
    if unsure.any():
        if model is None:
            raise MayBeRefusedError("a total near 0")
        return
    if method.target_sum is None:
        if not counted.any():
            raise MustBeRefusedError("no positive total")
        low, high = medians(np.asarray(totals[counted], np.float64), shares[counted])
        loose = 1e-12 + float((rounding[counted] / totals[counted]).max())
        if not low * (1 - loose) <= model.target_sum <= high * (1 + loose):
            raise AssertionError(f"a target of {model.target_sum} for a median of {low} to {high}")
        if whole(shares):
            repeated = np.repeat(totals[counted], shares[counted].astype(int))
            if abs(model.target_sum - np.median(repeated)) > loose * model.target_sum:
                raise AssertionError(f"a target of {model.target_sum} for {np.median(repeated)}")
    divisors = np.where(totals == 0, LONG(1), totals / LONG(model.target_sum))[:, None]
    expected = rows / divisors
    relative = 4 * precision(data) + (rounding / np.where(totals == 0, 1, totals))[:, None]
    tiny = 4 * float(np.finfo(mapped.dtype).smallest_subnormal)
    require_close(mapped, expected, relative * np.abs(expected) + tiny)


def whole(shares: np.ndarray) -> bool:
    return bool((shares == np.round(shares)).all() and shares.sum() < 1e6)


def medians(values: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    """Return the lower and the upper weighted median. Where rounding decides, they are further apart."""
    order = np.argsort(values)
    reached = np.cumsum(shares[order].astype(LONG))
    half, last = reached[-1] / 2, len(order) - 1
    low = int(np.searchsorted(reached, half * (1 - LONG(NEAR))))
    high = int(np.searchsorted(reached, half * (1 + LONG(NEAR)), side="right"))
    return float(values[order[low]]), float(values[order[min(high, last)]])


def log1p(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    rows = data.rows.astype(np.float64)
    if (rows < 0).any():
        raise MustBeRefusedError("negative values")
    expected = np.log1p(rows.astype(LONG))
    require_close(mapped, expected, 4 * precision(data) * np.abs(expected))


def clip(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    low = -np.inf if method.min is None else method.min
    high = np.inf if method.max is None else method.max
    expected = np.clip(data.rows.astype(np.float64), low, high).astype(mapped.dtype)
    require_close(mapped, expected, 0.0)


def unit_norm(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    if np.isnan(data.rows.astype(np.float64)).any():
        raise MustBeRefusedError("missing values")
    rows = data.rows.astype(LONG)
    order = {"l1": 1, "l2": 2, "max": np.inf}[method.norm]
    norms = np.linalg.norm(rows, ord=order, axis=1) if order != 2 else np.sqrt(np.sum(rows**2, axis=1))
    expected = rows / np.where(norms == 0, LONG(1), norms)[:, None]
    relative = 4 * precision(data) + 4 * rows.shape[1] * EPS
    require_close(mapped, expected, relative * np.abs(expected) + np.finfo(mapped.dtype).smallest_subnormal)


def chosen(entries: Any, d: int) -> np.ndarray:
    """Return the mask of columns that numbers, ranges or a mask mean."""
    if isinstance(entries, str):
        entries = [entries]
    entries = list(entries)
    if all(isinstance(each, bool | np.bool_) for each in entries):
        return np.array(entries, bool)
    support = np.zeros(d, bool)
    for each in entries:
        span = each.split(":") if isinstance(each, str) else None
        support[each if span is None else slice(*(int(end) if end else None for end in span))] = True
    return support


def select_columns(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    d = data.rows.shape[1]
    support = np.ones(d, bool) if method.columns is None else chosen(method.columns, d)
    if method.exclude is not None:
        support &= ~chosen(method.exclude, d)
    if not support.any():
        raise MustBeRefusedError("no column")
    require_close(mapped, data.rows[:, support].astype(np.float64), 0.0)


def moments(rows: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the weight, mean and variance of each column, and the allowed errors of the latter two."""
    observed = ~np.isnan(rows) & (shares > 0)[:, None]
    weights = np.where(observed, shares[:, None].astype(LONG), 0)
    total = weights.sum(axis=0)
    divisor = np.where(total > 0, total, 1)
    values = np.where(observed, rows.astype(LONG), 0)
    mean = (weights * values).sum(axis=0) / divisor
    moved = np.where(observed, values - mean, 0)
    variance = (weights * moved**2).sum(axis=0) / divisor
    largest = np.abs(values).max(axis=0)
    reach = np.abs(moved).max(axis=0)
    many = 16 * EPS * len(rows) ** 0.5
    off = 2 * EPS * largest + many * reach  # of the mean, and of each difference from it
    # Sums about the first value, or about zero where rows are sparse, are corrected by a square.
    few = (observed & (values == 0)).any(axis=0)
    error = (
        many * np.maximum(reach, np.where(few, largest, 0)) ** 2 + 4 * off * np.sqrt(variance) + 4 * off**2
    )
    return tuple(np.asarray(each, np.float64) for each in (total, mean, variance, off, error))


def unbiased(total: np.ndarray, ddof: int) -> np.ndarray:
    return np.where(total > ddof, total / np.where(total > ddof, total - ddof, 1), 1.0)


def standardise(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    """Means and deviations of the observed values. A column without variance is divided by one."""
    rows = data.rows.astype(np.float64)
    total, mean, variance, off, error = moments(rows, shares)
    if not (total > 0).any():
        raise MustBeRefusedError("no value")
    if model is None:
        return
    sure = np.ones(len(mean), bool)
    scale, relative = np.ones(len(mean)), np.zeros(len(mean))
    if method.with_std:
        constant = np.array(
            [len(np.unique(column[(shares > 0) & ~np.isnan(column)])) < 2 for column in rows.T], bool
        )
        sure = constant | (variance > 100 * error)
        varies = sure & ~constant
        deviation = np.sqrt(variance * unbiased(total, method.ddof))
        scale, relative = (
            np.where(varies, deviation, 1.0),
            np.where(varies, error / np.maximum(variance, 1e-300), 0),
        )
        require_close(model.scale[sure], scale[sure], relative[sure] * scale[sure], "scales")
    shift = mean if method.with_mean else np.zeros(len(mean))
    off = off if method.with_mean else np.zeros(len(mean))
    expected = (rows - shift) / scale
    allowed = (relative + 4 * precision(data)) * np.abs(expected) + off / scale
    if method.max_value is not None:
        low = -method.max_value if method.with_mean else -np.inf
        expected = np.clip(expected, low, method.max_value)
    require_close(mapped[:, sure], expected[:, sure], allowed[:, sure])


def scale_genotypes(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    """Numbers of alleles about their mean, over the deviation of a binomial distribution."""
    rows = data.rows.astype(np.float64)
    if (rows < 0).any() or (rows > method.ploidy).any():
        raise MustBeRefusedError("values that are no numbers of alleles")
    _, mean, *_ = moments(rows, shares)
    frequency = mean / method.ploidy
    rarer = np.minimum(frequency, 1 - frequency)
    level = max(method.min_maf, 1e-10)
    above, below = rarer >= level * (1 + NEAR) + 1e-14, rarer < level * (1 - NEAR) - 1e-14
    if method.min_maf == 0:
        below = rarer == 0
    if below.all():
        raise MustBeRefusedError("no column with two alleles")
    if model is None:
        if above.any():
            raise AssertionError("refused, though columns have two alleles")
        raise MayBeRefusedError("rare alleles")
    if not model.support[above].all() or model.support[below].any():
        raise AssertionError("columns are kept, or left out, for wrong frequencies")
    copies = method.ploidy if method.scaling == "binomial" else 1
    kept = np.flatnonzero(model.support)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.sqrt(copies * frequency * (1 - frequency))[kept]
        expected = np.nan_to_num((rows[:, kept] - mean[kept]) / scale, posinf=np.inf, neginf=-np.inf)
    allowed = 4 * precision(data) * (np.abs(expected) + method.ploidy / scale)
    allowed = allowed + 64 * EPS * len(rows) / rarer[kept] * np.abs(expected)
    sure = rarer[kept] > 1e-8
    require_close(mapped[:, sure], expected[:, sure], allowed[:, sure])


def select_variance(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    """Variances, or dispersions as scanpy defines them; kept columns are above those that are left out."""
    rows = data.rows.astype(np.float64)
    if len(rows) < 2:
        raise MustBeRefusedError("one row")
    counts = np.expm1(rows.astype(LONG)) if method.flavor == "seurat" else rows
    total, mean, variance, _, error = moments(counts, shares)
    if not (total > 0).any():
        raise MustBeRefusedError("no value")
    factor = unbiased(total, 1)
    variance, error = variance * factor, error * factor
    if method.flavor == "seurat":  # exponentials are taken in the type of the rows
        largest = np.abs(np.nan_to_num(np.asarray(counts, np.float64))).max(axis=0)
        error = error + 8 * precision(data) * (largest * np.sqrt(variance) + precision(data) * largest**2)
    if model is not None:
        require_close(mapped, rows[:, model.support], 0.0)
        found = np.asarray(model.variances)
        if np.abs(found - variance).max(initial=0, where=variance > 100 * error) > 0:
            sound = variance > 100 * error
            require_close(found[sound], variance[sound], error[sound], "variances")
    if method.flavor == "variance":
        above = variance > method.min_variance + error + NEAR * method.min_variance
        maybe = variance >= method.min_variance - error - NEAR * method.min_variance
        if model is None and above.any():
            raise AssertionError("refused, though columns have a variance")
        if model is None:
            raise MayBeRefusedError("no column with a variance")
        _require_best(model.support, variance, error + NEAR * variance, above, maybe, method.n_features)
        return
    expected = expected_columns(method, model, mean, variance, error)
    if model is None and (expected is None or not expected.any()):
        raise MayBeRefusedError("no column within the limits")
    if model is None:
        raise AssertionError("refused, though columns are within the limits")
    if expected is not None and not np.array_equal(model.support, expected):
        raise AssertionError(f"{np.flatnonzero(model.support)} for {np.flatnonzero(expected)}")


def _require_best(
    support: np.ndarray, score: np.ndarray, error: Any, above: np.ndarray, maybe: np.ndarray, most: int | None
) -> None:
    """Raise unless the largest scores were selected, as many as were wanted."""
    fewest, largest = int(above.sum()), int(maybe.sum())
    if most is not None:
        fewest, largest = min(most, fewest), min(most, largest)
    if not fewest <= support.sum() <= largest or (support & ~maybe).any():
        raise AssertionError(f"{support.sum()} columns for {fewest} to {largest}")
    left = above & ~support
    if left.any() and (score + error)[support].min() < (score - error)[left].max():
        raise AssertionError("a column that is left out varies more than one that is kept")


def expected_columns(
    method: Any, model: Any, mean: np.ndarray, variance: np.ndarray, error: np.ndarray
) -> np.ndarray | None:
    """Compare dispersions, and return the mask of the columns to select; None if rounding decides."""
    varies = variance > 1e7 * error
    if not (varies | (variance <= error)).all() or (mean < 0).any() or len(np.unique(mean)) < 2:
        return None
    level = np.where(mean == 0, 1e-12, mean)
    dispersion = np.where(varies, variance / level, 0.0)
    if method.flavor == "seurat":
        with np.errstate(divide="ignore"):
            dispersion, level = np.where(varies, np.log(dispersion), np.nan), np.log1p(level)
        edges = np.linspace(level.min(), level.max(), method.n_bins + 1)[1:-1]
    else:
        edges = np.percentile(level, np.arange(10, 105, 5))
    distance = np.abs(level[:, None] - edges)
    if ((distance > 0) & (distance < NEAR * np.abs(edges))).any():
        return None
    number = (level[:, None] > edges * (1 + NEAR)).sum(axis=1)
    normal = np.full(len(level), np.nan)
    for each in np.unique(number):
        inside = np.flatnonzero((number == each) & ~np.isnan(dispersion))
        if not len(inside):
            continue
        found = _normalised(dispersion[inside], method.flavor)
        if found is None:
            return None
        normal[inside] = found
    if model is not None:
        require_close(model.dispersions_norm, normal, 1e-4 * (1 + np.abs(normal)), "normalised dispersions")
    if method.n_features is None:
        scores = np.where(np.isnan(normal), 0.0, normal)
        most = np.inf if method.max_disp is None else method.max_disp
        limits = ((level, method.min_mean, method.max_mean), (scores, method.min_disp, most))
        if any((np.abs(x - limit) < 1e-4 * (1 + np.abs(x))).any() for x, *ends in limits for limit in ends):
            return None
        return np.logical_and.reduce([(x > low) & (x < high) for x, low, high in limits])
    ascending = np.sort(normal[~np.isnan(normal)])
    if not len(ascending):
        return np.zeros(len(normal), bool)
    if (np.diff(ascending) < 1e-4 * (1 + np.abs(ascending[1:]))).any():
        return None
    return normal >= ascending[-min(method.n_features, len(ascending))]


def _normalised(values: np.ndarray, flavor: str) -> np.ndarray | None:
    """Return dispersions relative to the others of their bin; None if these are equal but for rounding."""
    largest = 1e-6 * max(np.abs(values).max(), 1.0 if flavor == "seurat" else 0.0)  # of logarithms
    if flavor == "seurat" and len(values) == 1:
        return np.ones(1)
    if len(values) == 1:
        return np.full(1, np.nan)
    if np.ptp(values) <= largest:
        return None
    if flavor == "seurat":
        return (values - values.mean()) / values.std(ddof=1)
    middle = np.median(values)
    spread = np.median(np.abs(values - middle)) / 0.6744897501960817
    return None if spread <= largest else (values - middle) / spread


def bins(method: Any, model: Any, data: Any, shares: np.ndarray, mapped: np.ndarray) -> None:
    """Quantiles of the observed values, or equal widths; a bin is the number of edges at or below a value."""
    rows = data.rows.astype(np.float64)
    observed = ~np.isnan(rows) & (shares > 0)[:, None]
    if not observed.any():
        raise MustBeRefusedError("no value")
    edges = np.asarray(model.edges)
    expected = np.where(np.isnan(rows), np.nan, (rows[None] >= edges[:, None]).sum(axis=0))
    require_close(mapped, expected, 0.0)
    for column, some in enumerate(observed.T):
        found = edges[~np.isnan(edges[:, column]), column]
        values, weights = rows[some, column], shares[some]
        if len(values) == 0 or values.min() == values.max():
            if len(found):
                raise AssertionError(f"column {column} is constant, and has edges {found[:3]}")
        elif method.strategy == "uniform":
            wanted = np.linspace(LONG(values.min()), LONG(values.max()), method.n_bins + 1)[1:-1]
            if len(found) == len(wanted):
                require_close(found, wanted, 8 * EPS * np.abs(values).max(), "edges")
            elif np.ptp(values) > 1e-9 * np.abs(values).max():
                raise AssertionError(f"{len(found)} edges for {len(wanted)}")
        else:
            _require_quantiles(found, values, weights, method.n_bins)


def _require_quantiles(found: np.ndarray, values: np.ndarray, weights: np.ndarray, n_bins: int) -> None:
    """Raise unless edges are the quantiles of repeated values, without the least value."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    if whole(weights):
        ascending = np.repeat(ascending, weights[order].astype(int))
        places = [-(-share * len(ascending) // n_bins) - 1 for share in range(1, n_bins)]
        wanted = np.unique(ascending[places])
        wanted = wanted[wanted > ascending[0]]
        if not np.array_equal(found, wanted):
            raise AssertionError(f"edges {found[:4]} for {wanted[:4]}")
        return
    reached = np.cumsum(weights[order].astype(LONG))
    for share in range(1, n_bins):
        cut = reached[-1] * share / n_bins
        low, high = (
            ascending[min(int(np.searchsorted(reached, cut * (1 + LONG(side)))), len(order) - 1)]
            for side in (-NEAR, NEAR)
        )
        if low > ascending[0] and not ((found >= low) & (found <= high)).any():
            raise AssertionError(f"no edge at {low}, the quantile {share / n_bins}")


STEP_REFERENCES: dict[str, Callable[[Any, Any, Any, np.ndarray, np.ndarray], None]] = {
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
