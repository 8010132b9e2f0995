"""The features that a method sees: those that are never observed are left out, and weights are applied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamdr.core.axes import FeatureAxes, named_features
from streamdr.core.blocks import Array
from streamdr.core.method import Method, Pass, Phase
from streamdr.data.feature_subset import FeatureSubset, unobserved_features
from streamdr.data.source import Source
from streamdr.errors import DataError, ParameterError
from streamdr.methods.chain import Chain
from streamdr.statistics.observed import Observed

_SLAB_BYTES = 1 << 22
"""At least the bytes of the arrays that `Observed` makes of a few rows."""


def axes_of(source: Source) -> FeatureAxes:
    """Return the axes of the features of a source: unlabelled ones, if it has no labels."""
    if source.axes is not None:
        return source.axes
    shape = source.sample_shape or (source.spec.n_cols,)
    plain = ("feature",) if len(shape) == 1 else tuple(f"axis_{axis + 1}" for axis in range(len(shape)))
    names = (source.dims or (None, *plain))[1:]
    dims = tuple(name or other for name, other in zip(names, plain, strict=True))
    dims = dims if len(set(dims)) == len(dims) else plain
    return FeatureAxes(dims, shape, named_features(dims[0], source.feature_names) if len(dims) == 1 else ())


def selects_features(method: Method, source: Source) -> bool:
    """Whether a method may see other features than those of a source. Wishes that it ignores are refused.

    The features of a plain matrix are all used: there, a column without values is more likely a mistake.
    """
    axes = source.axes
    if axes is None:
        return False
    if method.tags.feature_subset and not _takes_products(method):
        _require_share(axes.min_observed)
        _require_weighing(method, axes)
        return True
    wishes = {
        "feature_weights": axes.weights is not None,
        "balance_variables": axes.balanced,
        "min_observed": axes.min_observed is not None,
    }
    for wish, given in wishes.items():
        if given:
            name = next((each.name for each in _seeing(method) if not each.tags.feature_subset), method.name)
            raise ParameterError(wish, f"{name} cannot leave out or weigh features; remove {wish}")
    return False


def observation_pass(method: Method, source: Source) -> Pass | None:
    """Return the pass that must precede the choice of features; None if the first rows are enough.

    A method that takes missing values needs it if some features have no value in the first rows: those that
    have one later are kept.
    """
    if not selects_features(method, source):
        return None
    axes = source.axes
    assert axes is not None  # only then features are selected
    counts = axes.min_observed is not None and source.spec.dtype.kind == "f"
    if not (counts or axes.balanced) and _takes_missing(method):
        counts = unobserved_features(source) is not None
    if not (counts or axes.balanced):
        return None
    return Pass(Observed(source.spec.n_cols, moments=axes.balanced), label="observed values")


def observation_phase(source: Source, request: Pass) -> Phase:
    """Return the memory of that pass."""
    held = sum(array.nbytes for array in request.empty.arrays().values())
    row = 8 * source.spec.n_cols
    return Phase(held, scratch_bytes=held + 2 * _SLAB_BYTES + 8 * row, solve_bytes=4 * row)


def features_for(
    method: Method, source: Source, observed: Observed | None = None, *, counting: Phase | None = None
) -> Source:
    """Return the source as a method sees it.

    A feature of weight 0 is left out, and so is one that is observed too rarely: in fewer rows than
    `min_observed`, or never. `observed` are the statistics of all rows. Without them, the first rows are
    read: a feature that has a value in later rows only is then an error when the value is read. `counting`
    is the memory of the pass for these statistics, where it is not in the ledger.
    """
    if not selects_features(method, source):
        return source
    axes = source.axes
    assert axes is not None  # only then features are selected
    guesses = observed is None and not _takes_missing(method)
    missing = _missing(source, axes, observed) if observed is not None or guesses else None
    kept = _kept(source, axes, missing)
    if axes.balanced and observed is not None:
        # A method that divides columns by their deviations gives each the variance 1 before it weighs them.
        unit = getattr(_seeing(method)[-1], "scale", False)
        axes = _balanced(axes, kept, (observed.variance > 0).astype(float) if unit else observed.variance)
    if axes.weights is None and kept.all() and counting is None:
        return source
    weighted = axes.weights is not None and not method.tags.weighs_features
    if missing is not None and axes.weights is not None:
        missing &= axes.weights != 0  # a feature of weight 0 may have values
    return FeatureSubset(
        source,
        replace(axes.keeping(kept), weighted=weighted),
        unobserved=missing if guesses else None,
        counting=counting,
    )


def foreseen_features(method: Method, source: Source, counting: Phase) -> Source:
    """Return the features that a method will probably see, before the pass over all rows: as in the first."""
    axes = source.axes
    assert axes is not None  # only then there is such a pass
    missing = unobserved_features(source)
    kept = _kept(source, axes, None if missing is None or missing.all() else missing)
    if axes.balanced and axes.weights is None:
        axes = replace(axes, weights=np.ones(axes.n_features))
    weighted = axes.weights is not None and not method.tags.weighs_features
    return FeatureSubset(source, replace(axes.keeping(kept), weighted=weighted), counting=counting)


def for_model(source: Source, axes: FeatureAxes | None) -> Source:
    """Return the features of a source that a model uses, for a model that was fitted with these axes."""
    return source if axes is None or not axes.selects else FeatureSubset(source, axes)


def _missing(source: Source, axes: FeatureAxes, observed: Observed | None) -> Array | None:
    """Return which features are observed too rarely."""
    n_features = source.spec.n_cols
    if observed is None:
        missing = unobserved_features(source)
        if missing is not None and missing.all():
            raise DataError(
                f"{source.name}: all {n_features:,} features are missing in the first rows; check the "
                "variable and its fill value, leave out these rows, or use the method ppca, which takes "
                "missing values (in Python streamdr.PPCA)"
            )
        return missing
    if not observed.weights.any():
        raise DataError(
            f"{source.name}: all {n_features:,} features are missing in all rows; check the variable and its "
            "fill value"
        )
    if axes.min_observed is None:
        return observed.weights <= 0
    most = float(observed.share.max())
    # Sums of weights are rounded: a share that is reached up to rounding is reached.
    rare: Array = (observed.weights <= 0) | (observed.share < axes.min_observed * (1 - 1e-9))
    if rare.all():
        raise ParameterError(
            "min_observed",
            f"no feature is observed in {axes.min_observed:.4g} of the rows, and the most often observed in "
            f"{most:.4g} of them; lower it",
        )
    return rare


def _kept(source: Source, axes: FeatureAxes, missing: Array | None) -> Array:
    """Return which features are kept. At least one must be, and their weights must be numbers."""
    kept = np.ones(source.spec.n_cols, dtype=np.bool_) if missing is None else ~missing
    if axes.weights is None:
        return kept
    bad = np.flatnonzero(kept & ~(np.isfinite(axes.weights) & (axes.weights >= 0)))
    if bad.size:
        raise ParameterError(
            "feature_weights",
            f"{axes.described(int(bad[0]))} has weight {axes.weights[bad[0]]} ({bad.size} such features); "
            "weights must be finite and not negative",
        )
    kept = kept & (axes.weights > 0)
    if not kept.any():
        raise DataError(
            f"{source.name}: no observed feature has a positive weight, so there is nothing to fit"
        )
    return kept


def _balanced(axes: FeatureAxes, kept: Array, variance: Array) -> FeatureAxes:
    """Return the axes with weights that give every variable a total variance of 1.

    A variable whose features are all constant keeps its weights.
    """
    given = np.ones(axes.n_features) if axes.weights is None else axes.weights.astype(np.float64)
    groups = axes.groups
    level = np.maximum(1e-300, np.where(kept, given, 0.0).max())  # squares of tiny weights would vanish
    shares = np.zeros(axes.n_features)
    shares[kept] = variance[kept] * (given[kept] / level) ** 2
    totals = np.bincount(groups, shares)
    factors = 1.0 / (np.sqrt(np.where(totals > 0, totals, 1.0)) * np.where(totals > 0, level, 1.0))
    return replace(axes, weights=given * factors[groups])


def _require_share(min_observed: float | None) -> None:
    """Refuse a share of rows that is not one."""
    if min_observed is not None and not 0 <= min_observed <= 1:
        raise ParameterError("min_observed", f"{min_observed} is not a share of the rows, from 0 to 1")


def _require_weighing(method: Method, axes: FeatureAxes) -> None:
    """Refuse weights where a step comes first, unless the method after the steps applies them itself."""
    seeing = _seeing(method)
    first, last = seeing[0], seeing[-1]
    if not first.tags.step:
        return
    if axes.balanced:
        raise ParameterError(
            "balance_variables",
            f"{first.name} changes the variances by which variables are balanced; remove balance_variables",
        )
    if axes.weights is not None and not last.tags.weighs_features:
        raise ParameterError(
            "feature_weights",
            f"{last.name} does not weigh what {first.name} makes of the features; end the steps with pca, or "
            "remove feature_weights",
        )


def _seeing(method: Method) -> tuple[Method, ...]:
    """Return the members of a chain that see the features, or another method alone."""
    return method.seeing if isinstance(method, Chain) else (method,)


def _takes_missing(method: Method) -> bool:
    """Whether NaN is a missing value for a method."""
    if isinstance(method, Chain):
        return method.allows_nan
    return bool(method.model.allow_nan)  # type: ignore[attr-defined]


def _takes_products(method: Method) -> bool:
    """Whether the columns are samples: a matrix of kernels or distances."""
    return "precomputed" in (getattr(method, "kernel", None), getattr(method, "metric", None))
