"""The checks of one case, which must hold for any data: fit, transform, save, load, compare."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from fuzz_cases import PARAMETERS, SMALL, Data, random_data
from fuzz_references import REFERENCES
from fuzz_scores import check_scores
from fuzz_step_checks import check_step
from fuzz_steps import suit

from streamdr import store
from streamdr.core.execution import Execution
from streamdr.core.linalg import ignore_overflow
from streamdr.core.method import Model, Supervised
from streamdr.data import open_source
from streamdr.engine.fitting import arithmetic, fit, one_blas_thread
from streamdr.errors import StreamdrError
from streamdr.estimators.registry import ESTIMATORS
from streamdr.methods import METHODS
from streamdr.methods.chain import ChainModel

OF_FEATURES = ("mean", "means")
"""Fields that are NaN for features that were never observed."""
MAY_BE_NAN = ("edges", "dispersions", "dispersions_norm")
"""Fields that are NaN where a column has fewer edges, or no variance."""
OURS = r"streamdr\."


class BrokenError(AssertionError):
    """A failed check of a case, with the numbers that reproduce it."""


def check_case(name: str, seed: int, number: int, folder: Path) -> str:
    """Run one case. Return "fitted", or "refused" if streamdr raised an error. Raises `BrokenError`."""
    rng = np.random.default_rng([seed, number, *name.encode()])
    data = random_data(rng, allow_nan=allows_nan(name) or rng.uniform() < 0.03, small=name in SMALL)
    parameters = PARAMETERS[name](rng, data)
    if METHODS[name].tags.step:
        data = suit(rng, METHODS[name](**parameters), data)
    case = f"{name} {parameters} of {', '.join(data.words)}"
    with running(f"seed {seed}, case {number}: {case}", f"{name}:{seed}:{number}"):
        return _check(name, parameters, data, bool(rng.uniform() < 0.25), folder)


@contextmanager
def running(case: str, again: str) -> Iterator[None]:
    """Turn warnings and all errors into a `BrokenError` that says how to repeat the case."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", category=UserWarning, module=OURS)  # raised on purpose
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BrokenError(
            f"{case}: {type(error).__name__}: {error}\n"
            f"again with: STREAMDR_FUZZ_CASE={again} pytest -m fuzz tests/fuzz"
        ) from error


def _check(name: str, parameters: dict[str, Any], data: Data, stored: bool, folder: Path) -> str:
    method = METHODS[name](**parameters)
    labels = None
    if isinstance(method, Supervised):
        labels = data.classes if method.target == "classes" or len(data.rows) % 2 else data.numbers
    weights = None if name.endswith("_mds") else data.weights
    if method.tags.step:
        return _check_step(name, parameters, data, stored, folder)
    try:
        source = open_source(data.rows, weights=weights, labels=labels)
        fitted = fit(method, source, Execution(workers=1))
    except StreamdrError as error:
        if not str(error).strip():
            raise BrokenError("an error without a message") from error
        return "refused"
    model: Any = fitted.model
    _require_finite(name, model, data)
    with one_blas_thread():
        mapped = _mapped(name, model, data)
    _require_within_total(model)
    if not data.has_missing:
        check_scores(name, model, data, weights, mapped)
    if name in REFERENCES and not data.has_missing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            REFERENCES[name](method, model, data, weights, labels)
    if stored:
        _check_estimator(name, parameters, data, weights, labels, mapped)
        check_stored(method, data, weights, labels, folder)
        check_saved(name, parameters, model, mapped, data, folder)
    return "fitted"


def _check_step(name: str, parameters: dict[str, Any], data: Data, stored: bool, folder: Path) -> str:
    method = METHODS[name](**parameters)
    found = check_step(name, method, data, data.weights)
    if found is None:
        return "refused"
    model, mapped = found
    _require_finite(name, model, data)
    if stored:
        _check_estimator(name, parameters, data, data.weights, None, mapped)
        check_stored(method, data, data.weights, None, folder)
        check_saved(name, parameters, model, mapped, data, folder)
    return "fitted"


def _mapped(name: str, model: Any, data: Data) -> np.ndarray:
    rows = np.asarray(data.rows)
    with ignore_overflow():  # as the transform of a run does
        mapped = model.transform(rows)
    if not np.isfinite(mapped.astype(float)).all() and not _overflows(model, data):
        raise BrokenError(
            f"transform returns {np.count_nonzero(~np.isfinite(mapped))} values that are not finite"
        )
    if mapped.shape != (len(rows), model.n_outputs):
        raise BrokenError(f"transform returns {mapped.shape} for {rows.shape}")
    if name == "kernel_pca" and model.dual_coefficients is not None:
        back = model.inverse_transform(mapped.astype(np.float64))
        if not np.isfinite(back).all():
            raise BrokenError("the inverse transform returns values that are not finite")
    if name == "ppca":
        filled = model.impute(rows)
        if not np.isfinite(filled[:, observed(data)]).all():
            raise BrokenError("impute leaves values that are not finite")
    return mapped


def _overflows(model: Any, data: Data) -> bool:
    """Whether products of rows may overflow float32; kernel models detect that themselves."""
    if hasattr(model, "kernel"):
        return False
    largest = float(np.nanmax(np.abs(data.rows.astype(float)), initial=0))
    return data.rows.dtype.itemsize < 8 and largest**2 > 1e30


def _require_finite(name: str, model: Any, data: Data) -> None:
    """Refuse a model with values that are not finite, or without outputs or features."""
    for field, value in vars(model).items():
        if isinstance(value, float) and np.isnan(value):
            raise BrokenError(f"{field} is NaN")
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        sound = np.isfinite(value)
        if field in OF_FEATURES and allows_nan(name):
            sound |= ~observed(data)
        if field in MAY_BE_NAN:
            sound |= np.isnan(value)
        if not sound.all():
            raise BrokenError(f"{field} has values that are not finite")
    for number in (model.n_outputs, model.n_features):
        if number < 1:
            raise BrokenError(f"a model with {model.n_outputs} outputs for {model.n_features} features")
    model.summary()


def allows_nan(name: str) -> bool:
    model: Any = METHODS[name].model
    return model.allow_nan is True


def observed(data: Data) -> np.ndarray:
    """The mask of columns with a value in any row of positive weight."""
    rows = data.rows if data.weights is None else data.rows[data.weights > 0]
    return np.asarray(~np.isnan(rows.astype(np.float64)).all(axis=0))


def _require_within_total(model: Any) -> None:
    total = getattr(model, "total_variance", None)
    variance = getattr(model, "explained_variance", None)
    if total is None or variance is None:
        return
    if (variance < 0).any() or float(np.sum(variance)) > total * (1 + 1e-6):
        raise BrokenError(f"{np.sum(variance):.9g} explained of a total of {total:.9g}")
    if float(np.sum(model.explained_variance_ratio)) > 1 + 1e-6:
        raise BrokenError("more than all of the variance is explained")


def _check_estimator(
    name: str, parameters: dict[str, Any], data: Data, weights: Any, labels: Any, mapped: np.ndarray
) -> None:
    """Check that the estimator gives the same output."""
    given = {} if name.endswith("_mds") else {"sample_weight": weights}
    estimator = ESTIMATORS[name](**parameters)
    try:
        estimator.fit(data.rows, labels, **given)
    except StreamdrError:
        return
    except ValueError as error:
        if "scikit-learn" in str(error) or "sample" in str(error) or "type" in str(error):
            return  # raised by scikit-learn, before streamdr is called
        raise
    if not np.isfinite(mapped).all():
        return  # an overflow, which an estimator refuses
    found = estimator.transform(data.rows)
    if not np.array_equal(found, mapped, equal_nan=True):
        raise BrokenError("the estimator transforms rows differently from the fitted model")


def check_stored(method: Any, data: Data, weights: Any, labels: Any, folder: Path) -> None:
    """Check that a zarr store gives the same bits with one worker, with two, and twice with a ledger."""
    array = zarr.create_array(
        folder / "rows.zarr",
        shape=data.rows.shape,
        chunks=data.chunks,
        dtype=data.rows.dtype,
        config={"write_empty_chunks": True},
        overwrite=True,
    )
    array[:] = data.rows
    models: list[Model | str] = []
    ledger = folder / "ledger"
    for execution in (Execution(workers=1), Execution(workers=2), *[Execution(workers=1, ledger=ledger)] * 2):
        source = open_source(folder / "rows.zarr", weights=weights, labels=labels)
        try:
            models.append(fit(method, source, execution).model)
        except StreamdrError as error:
            models.append(str(error))
    require_same(models[0], models[1], "one worker and two workers differ")
    require_same(models[0], models[2], "a fit with a ledger differs")
    require_same(models[0], models[3], "a fit from the entries of a ledger differs")


def check_saved(
    name: str, parameters: dict[str, Any], model: Any, mapped: np.ndarray, data: Data, folder: Path
) -> None:
    place = folder / "model.zarr"
    store.save_model(
        place,
        model,
        method=name,
        parameters=parameters,
        feature_names=None,
        input_fingerprint="",
        n_rows=len(data.rows),
        overwrite=True,
    )
    loaded = store.load_model(place).model
    require_same(model, loaded, "a model that was saved and loaded differs")
    with arithmetic(), ignore_overflow():
        if not np.array_equal(loaded.transform(data.rows), mapped, equal_nan=True):
            raise BrokenError("a model that was saved and loaded transforms rows differently")


def require_same(one: Any, other: Any, what: str) -> None:
    if isinstance(one, str) or isinstance(other, str):
        if one != other:
            raise BrokenError(f"{what}: {one!r:.200} and {other!r:.200}")
        return
    if isinstance(one, ChainModel):
        for name, first, second in zip(one.names, one.models, other.models, strict=True):
            require_same(first, second, f"{what} in {name}")
        return
    for field in one.__dataclass_fields__:
        a, b = getattr(one, field), getattr(other, field)
        if isinstance(a, np.ndarray) and a.dtype.kind in "fiub":
            same = np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        else:
            same = np.array_equal(np.asarray(a), np.asarray(b)) or repr(a) == repr(b)
        if not same:
            raise BrokenError(f"{what} in {field}")
