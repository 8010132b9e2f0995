"""Random chains: they must give what their members give one after another, in memory, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import PARAMETERS, Data, choice, random_data
from fuzz_checks import BrokenError, check_saved, check_stored, require_same, running
from fuzz_step_checks import FEW, mapped_rows, outweighed
from fuzz_step_references import require_close
from fuzz_steps import STEPS, suit

import streamdr
from streamdr.core.blocks import SparseRows
from streamdr.core.execution import Execution
from streamdr.core.method import Supervised
from streamdr.data import open_source
from streamdr.engine.fitting import fit
from streamdr.errors import StreamdrError
from streamdr.estimators.registry import ESTIMATORS
from streamdr.methods import METHODS
from streamdr.methods.chain import chain_of, parameters_of

ROUTES = {"solver": "covariance", "approximation": "nystrom", "method": "em"}
"""What is used in the place of "auto": the cost of mapping rows may decide which route a chain takes."""
LAST = ("pca", "pca", "ppca", "kernel_pca", "lda", "select_f_score", "som")


def check_chain(seed: int, number: int, folder: Path) -> str:
    """Run one case. Return "fitted", or "refused" if streamdr raised an error. Raises `BrokenError`."""
    rng = np.random.default_rng([seed, number, *b"chain"])
    data = random_data(rng, allow_nan=rng.uniform() < 0.3, small=True)
    names = [str(choice(rng, *STEPS)) for _ in range(int(rng.integers(1, 4)))]
    names.append(choice(rng, *LAST))
    case = f"{' -> '.join(names)} of {', '.join(data.words)}"
    with running(f"seed {seed}, case {number}: {case}", f"chain:{seed}:{number}"):
        return _check(names, rng, data, folder)


def _check(names: list[str], rng: np.random.Generator, data: Data, folder: Path) -> str:
    members: list[Any] = []
    models: list[Any] = []
    refused: StreamdrError | None = None
    rows, weights = data.rows, data.weights
    labels = data.classes if isinstance(METHODS[names[-1]], Supervised) else None
    strictest = max(names[:-1], key=lambda name: METHODS[name].tags.nonnegative)
    data = suit(rng, METHODS[strictest](), data)
    rows = data.rows
    for name in names:
        parameters = PARAMETERS[name](rng, replace(data, rows=rows))
        parameters |= {key: route for key, route in ROUTES.items() if parameters.get(key) == "auto"}
        method = METHODS[name](**parameters)
        members.append(method)
        if refused is None:
            try:
                source = open_source(rows, weights=weights, labels=labels)
                models.append(fit(method, source, Execution(workers=1)).model)
                rows = mapped_rows(source, models[-1])
            except StreamdrError as error:
                refused = error
    chain = chain_of(members)
    about = ", ".join(map(repr, members))
    try:
        source = open_source(data.rows, weights=weights, labels=labels)
        model: Any = fit(chain, source, Execution(workers=1)).model
        mapped = mapped_rows(source, model)
    except StreamdrError as error:
        # How many columns a step keeps is not known to the plan, so a mask of just as many is refused.
        if refused is None and "the mask has" not in str(error):
            raise BrokenError(f"{about}: refused: {error}") from error
        return "refused"
    if refused is not None:
        raise BrokenError(f"{about}: not refused, though a member is: {refused}")
    for own, member, name in zip(models, model.models, names, strict=True):
        if getattr(own, "solver", "") == "gram":
            _require_same_variances(own, member, data)  # how columns are read depends on the layout
            continue
        require_same(own, member, f"{about}: {name}, fitted alone and in the chain, differs")
        if member is model.last and not np.array_equal(mapped, rows, equal_nan=True):
            raise BrokenError(f"{about}: rows are mapped differently")
    if (data.rows == 0).mean() >= 1 - FEW and not outweighed(weights) and "bin" not in names:
        _check_sparse(chain, model, data, labels)
    if rng.uniform() < 0.25:
        _check_estimator(chain, data, labels, mapped)
        check_stored(chain, data, weights, labels, folder)
        check_saved("chain", parameters_of(chain), model, mapped, data, folder)
    return "fitted"


def _require_same_variances(own: Any, member: Any, data: Data) -> None:
    """Compare the variances of two PCAs, of rows that were read in other pieces."""
    variances, others = own.explained_variance, member.explained_variance
    loose = (1e-9 if data.rows.dtype.itemsize == 8 else 1e-4) * variances[0]
    if len(variances) != len(others) or np.abs(variances - others).max() > loose:
        raise BrokenError(f"variances {others[:4]} for {variances[:4]}")


def _check_sparse(chain: Any, dense: Any, data: Data, labels: Any) -> None:
    """Check that sparse rows arrive at the last member as dense ones do, but for rounding."""
    if data.rows.dtype.itemsize < 8:
        return  # rounding in single precision may decide which columns a later step keeps
    source = open_source(SparseRows(data.rows), weights=data.weights, labels=labels)
    sparse: Any = fit(chain, source, Execution(workers=1)).model
    before = chain.names[-2]
    expected = dense.up_to(before).transform(data.rows.astype(np.float64))
    found = mapped_rows(source, sparse.up_to(before))
    require_close(found, expected, 1e-9 * np.nanmax(np.abs(expected), initial=0), "sparse rows")


def _check_estimator(chain: Any, data: Data, labels: Any, mapped: np.ndarray) -> None:
    """Check that the chain of estimators gives the same rows."""
    members = [ESTIMATORS[step.name](**vars(step)) for step in chain.steps]
    try:
        estimator = streamdr.Chain(members).fit(data.rows, labels, sample_weight=data.weights)
    except StreamdrError:
        return
    except ValueError as error:
        if "scikit-learn" in str(error) or "sample" in str(error) or "type" in str(error):
            return  # raised by scikit-learn, before streamdr is called
        raise
    if np.isfinite(mapped).all() and not np.array_equal(estimator.transform(data.rows), mapped):
        raise BrokenError("the estimator transforms rows differently from the fitted model")
