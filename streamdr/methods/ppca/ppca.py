"""Probabilistic PCA: in closed form for complete data, by EM with missing values."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import count
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec, Part
from streamdr.core.linalg import constant_columns
from streamdr.core.method import Model, OnlineFit, Pass, Passes, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.errors import DataError, MissingValuesError, ParameterError
from streamdr.methods.pca.model import PCAModel
from streamdr.methods.pca.pca import PCA
from streamdr.methods.ppca.em import LEAST_NOISE, Principal, divergence, maximise
from streamdr.methods.ppca.holdout import Holdout
from streamdr.methods.ppca.latent import Latent, require_finite
from streamdr.methods.ppca.model import PPCAModel, parameter_count, ppca_outline
from streamdr.methods.ppca.observed_counts import ObservedCounts
from streamdr.methods.ppca.online import PPCAStream
from streamdr.methods.ppca.pairwise import Pairwise
from streamdr.methods.ppca.routes import em_route
from streamdr.methods.ppca.stepwise import PAIRWISE_COLUMNS, StartStatistics, StepwiseEM, fitted, sample_rows
from streamdr.statistics.anderson import ROUNDING, Anderson
from streamdr.statistics.concurrent import with_shared_passes
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import draw_sample
from streamdr.statistics.validation import no_values, require, require_products, whole_numbers

_MINIBATCHES = 16
_START_ROWS = 20_000


class Iterate(NamedTuple):
    """An iterate of EM: parameters, their E step, their objective, and the parameters after the M step."""

    now: Principal
    full: Latent
    objective: float
    after: Principal


@dataclass(eq=False)
class PPCA:
    """Probabilistic PCA of data of any length, with or without missing values (NaN).

    Parameters
    ----------
    n_components : int or list of int
        The number of latent variables. Of a list the best is chosen: by the likelihood of held-out values if
        `holdout` is set, otherwise by BIC. All of them are fitted with shared passes.
    method : "auto", "closed_form", "em" or "minibatch"
        `"closed_form"` is exact in one pass for complete data; `"em"` allows missing values, with one pass
        per iteration; `"minibatch"` starts with one pass with a step after each part of the data, and
        continues like `"em"`. `"auto"` is `"closed_form"` until a missing value is found.
    batch_rows : int or None
        The number of rows of a minibatch; None for a sixteenth of all rows.
    tol : float
        EM stops when a step changes the model by less than this: the Kullback-Leibler divergence in nats per
        value.
    append_tol : float
        After an append, the first step of EM reads only the new rows. It is the last step if it changes the
        model by less than this fraction of the sampling error; 0 iterates to `tol`, reading all rows.
    max_iter : int
        The most iterations of EM, each of which reads the data once.
    ridge : float
        Shrinks the loadings, like that many additional rows at the mean for each feature: for very sparse
        data.
    holdout : float
        The fraction of values that are hidden from the fit and predicted, to measure its accuracy.
    random_state : int
        Seeds the choice of held-out values, and the start for wide data.
    solver : "auto", "covariance", "gram" or "krylov"
        How `"closed_form"` computes the components, as in PCA.

    See Also
    --------
    PCA : Without a noise model.
    PPCAMixture : Several of them.

    References
    ----------
    Tipping and Bishop, Probabilistic principal component analysis, JRSS B 61 (1999).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> X[1, 2] = np.nan
    >>> ppca = streamdr.PPCA(n_components=1).fit(X)
    >>> ppca.impute(X)[1].round(1)
    array([0. , 1. , 3.4])
    """

    name: ClassVar[str] = "ppca"
    model: ClassVar[type] = PPCAModel
    tags: ClassVar[Tags] = Tags(inexact_on=("drifting", "uneven scales", "rank one"), feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"n_components": 2},)
    added_parameters: ClassVar[Mapping[str, Any]] = {"append_tol": 0.5}
    """Parameters that earlier versions lacked, with the equivalent values: their outputs stay up to date."""

    n_components: int | list[int] = 1
    _: KW_ONLY
    method: Literal["auto", "closed_form", "em", "minibatch"] = "auto"
    batch_rows: int | None = None
    tol: float = 1e-6
    append_tol: float = 0.5
    max_iter: int = 100
    ridge: float = 0.0
    holdout: float = 0.0
    random_state: int = 0
    solver: Literal["auto", "covariance", "gram", "krylov"] = "auto"

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [
            cls(3, method="closed_form"),
            cls([1, 3], max_iter=8),
            cls(3, method="em", max_iter=5),
            cls([2, 3], method="em", max_iter=3, holdout=0.1),
            cls(2, method="em", max_iter=3, ridge=1.0),
            cls(3, method="minibatch", max_iter=2),
            cls(3, method="minibatch", max_iter=1, batch_rows=7),
        ]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        sizes = self.sizes
        for k in sizes:
            require(k >= 1, "n_components", f"{k} is not at least 1")
        methods = ("auto", "closed_form", "em", "minibatch")
        require(self.method in methods, "method", f"{self.method!r} is not one of {', '.join(methods)}")
        PCA(max(sizes), solver=self.solver).check()
        if self.batch_rows is not None:
            require(self.batch_rows >= 1, "batch_rows", f"{self.batch_rows} is not at least 1")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")
        require(self.append_tol >= 0, "append_tol", f"{self.append_tol} is negative")
        require(self.max_iter >= 1, "max_iter", f"{self.max_iter} is not at least 1")
        require(self.ridge >= 0, "ridge", f"{self.ridge} is negative")
        require(
            0 <= self.holdout < 1, "holdout", f"{self.holdout} is not a fraction of at least 0 and below 1"
        )
        if self.method == "closed_form":
            require(
                self.holdout == 0,
                "holdout",
                "holds values out, and the closed form needs them all: set method to em, or holdout to 0",
            )
            require(self.ridge == 0, "ridge", "is not for the closed form: set method to em, or ridge to 0")

    @property
    def sizes(self) -> list[int]:
        """The numbers of components to choose from."""
        return whole_numbers("n_components", self.n_components)

    def using(self, route: str) -> Self:
        """The same method with its algorithm, or the solver of its closed form, fixed."""
        if route in ("em", "minibatch"):
            return replace(self, method=cast(Any, route))
        return replace(self, solver=cast(Any, route))

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The possible routes, with their costs."""
        self.check()
        most = max(self.sizes)
        if data.n_rows < 2:
            raise DataError(
                f"PPCA needs at least 2 rows to see variance, not one sample: n_samples = {data.n_rows}"
            )
        if most >= data.n_cols:
            raise ParameterError(
                "n_components",
                f"{most} components leave no direction for noise in data of n_features = {data.n_cols}: "
                f"set it to {data.n_cols - 1} or fewer",
            )
        if most > data.n_rows:
            raise ParameterError(
                "n_components", f"{most} components need as many rows, and the data has {data.n_rows}"
            )
        by_em = em_route(self if self.method == "minibatch" else self.using("em"), data)
        if self.method in ("em", "minibatch") or self.ridge or self.holdout:
            return [by_em]
        closed = self._pca(most).routes(data)
        if self.method == "closed_form" or data.dtype.kind != "f":
            return [
                replace(route, method=self.using(route.name), name=f"closed form by {route.name}")
                for route in closed
            ]
        return [*(self._either(route, by_em) for route in closed), by_em]

    def _either(self, closed: Route, by_em: Route) -> Route:
        """The closed form until a missing value is found, and EM from then on."""
        return replace(
            closed,
            method=self.using(closed.name),
            name=f"closed form by {closed.name}",
            passes=closed.passes + by_em.passes,
            phases=(*closed.phases, *by_em.phases),
            usual_passes=closed.passes,
            fallback=by_em,
        )

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model with the largest number of components."""
        return [ppca_outline(data, max(self.sizes))]

    def passes(self, data: MatrixSpec, start: PPCAModel | None = None) -> Passes:
        """The passes of the chosen method."""
        was_incomplete = self.method == "auto" and start is not None and start.solver != "closed_form"
        if self.method in ("em", "minibatch") or was_incomplete:
            return self._em(data, start)
        return self._closed_form(data)

    def stream(self, n_cols: int, start: PPCAModel | None = None, n_rows: int = 0) -> OnlineFit | None:
        """An online fit for `partial_fit`; None where the statistics of one pass are enough."""
        if self.method == "closed_form":
            return None
        require(
            len(self.sizes) == 1, "n_components", "partial_fit needs one number of components, not a choice"
        )
        return PPCAStream(self, n_cols) if start is None else PPCAStream.after(self, start, n_rows)

    def _pca(self, k: int) -> PCA:
        return PCA(k, solver=self.solver, ddof=0, random_state=self.random_state)

    def _closed_form(self, data: MatrixSpec) -> Passes:
        """The closed form from a PCA, or EM if a missing value is found and the method allows it."""
        try:
            found = yield from self._pca(max(self.sizes)).passes(data)
        except MissingValuesError as missing:
            if self.method == "closed_form":
                raise ParameterError(
                    "method", f"the closed form needs complete data; set it to auto or em: {missing}"
                ) from missing
            return (yield from self._em(data, None))
        models = [closed_form(cast(PCAModel, found), k) for k in self.sizes]
        return best_model(models, [model.bic for model in models])

    def _em(self, data: MatrixSpec, start: PPCAModel | None) -> Passes:
        """EM for all numbers of components, or from the model of an earlier fit; the best model."""
        holdout = (yield from self._held_out(data)) if self.holdout else None
        if start is not None and start.n_components in self.sizes:
            continued = yield from self._iterations(
                start.anchor, start.constant_features, holdout, after=start
            )
            if cast(PPCAModel, continued).new_features == 0:
                return continued
        beginning = yield from self._beginning(data, holdout)
        constant = self._constant(beginning)
        if self.method == "minibatch":
            runs = [self._minibatches(data, beginning.principal(k), constant, holdout) for k in self.sizes]
        else:
            runs = [self._iterations(beginning.principal(k), constant, holdout) for k in self.sizes]
        del beginning  # it may be as large as all that follows
        models = cast("list[PPCAModel]", (yield from with_shared_passes(runs)))
        if self.holdout:
            if any(model.held_out is None for model in models):
                raise ParameterError(
                    "holdout", f"a fraction of {self.holdout} holds out no value: set a larger one"
                )
            return best_model(models, [-float(cast(Array, model.held_out)[1]) for model in models])
        return best_model(models, [model.bic for model in models])

    def _held_out(self, data: MatrixSpec) -> Generator[Pass, Accumulator, Holdout]:
        """The held-out values. A column that would lose all its values keeps them."""
        holdout = Holdout(float(self.holdout), int(self.random_state))
        while True:
            request = Pass(ObservedCounts(data.n_cols, holdout), label="held-out values")
            fully_held_out = cast(ObservedCounts, (yield request)).fully_held_out
            if not fully_held_out:
                return holdout
            holdout = replace(
                holdout, never_held_out=tuple(sorted({*holdout.never_held_out, *fully_held_out}))
            )

    def _beginning(
        self, data: MatrixSpec, holdout: Holdout | None
    ) -> Generator[Pass, Accumulator, StartStatistics]:
        """The start from a part of the data: pairwise covariances, or a sample for many features."""
        parts = self.first_parts(data)
        part = Part(0, parts) if parts > 1 else None
        if data.n_cols > PAIRWISE_COLUMNS:
            size = sample_rows(data, max(self.sizes))
            empty_sample = Sample(data.n_cols, size, int(self.random_state))
            return StartStatistics(
                None, (yield from draw_sample(empty_sample, data, "a sample to start from", parts))
            )
        empty = Pairwise(data.n_cols, holdout)
        pairs = cast(Pairwise, (yield Pass(empty, label="covariances to start from", part=part)))
        if part is not None and not (pairs.counts > 1).all():
            # Features that are missing in the part may be observed in the other rows.
            pairs = cast(Pairwise, (yield Pass(empty, label="covariances to start from")))
        return StartStatistics(pairs, None)

    def first_parts(self, data: MatrixSpec) -> int:
        """The number of parts of the data, one of which is read for the start of EM."""
        return self._parts(data) if self.method == "minibatch" else max(1, data.n_rows // _START_ROWS)

    def minibatch(self, data: MatrixSpec) -> Part | None:
        """One of the minibatches; None where all rows are one."""
        parts = self._parts(data)
        return Part(0, parts) if parts > 1 else None

    def _constant(self, beginning: StartStatistics) -> int:
        """The number of constant features. Data without variance is refused."""
        mean, variance = beginning.features()
        if not len(mean):
            raise no_values()
        require_products(variance)
        constant = len(constant_columns(variance, mean))
        if constant == len(mean):
            raise DataError("every column is constant: there is no variance to explain")
        if max(self.sizes) >= len(mean) and beginning.pairs is not None:
            raise ParameterError(
                "n_components",
                f"{max(self.sizes)} components leave no direction for noise: only {len(mean)} features "
                "have any observed value",
            )
        return constant

    def _iterations(
        self,
        now: Principal,
        constant: int,
        holdout: Holdout | None,
        done: Sequence[float] = (),
        after: PPCAModel | None = None,
    ) -> Passes:
        """EM until a step changes the model by less than `tol`.

        Steps are extrapolated (Anderson). A step that lowers the objective is rejected; if it was a plain
        step of EM, only rounding is left to gain.

        If it continues `after` a model of fewer rows, components have the signs of that model, so that an
        embedding that is updated regularly keeps its signs. One step may then be enough (`append_tol`). It
        starts from the anchor, where EM had converged, so that the ledger has the pass over the old rows
        next time, too.
        """
        history, path, frame = list(done), Anderson(), now.loadings
        like = None if after is None else after.principal
        best: Iterate | None = None
        change = np.inf
        label = f"EM {len(history) + 1}"
        for number in count(len(history) + 1):
            full = cast(Latent, (yield Pass(Latent([now.factors], holdout=holdout), label=label)))
            if best is None:
                require_finite(full)
            objective = full.log_likelihood - self.ridge * float(np.sum(now.loadings**2)) / (2 * now.noise)
            if best is not None and not objective >= best.objective - ROUNDING * abs(best.objective):
                if now is best.after:
                    return self._fitted(best.now, best.full, history, change, constant, converged=True)
                now = best.after
                path.forget()
            else:
                history.append(full.log_likelihood / full.rows)
                step = maximise(full.statistics[0], now.factors, ridge=self.ridge)
                following = step.after.with_signs_of(like)
                change = divergence(now.factors, following.factors)
                if change <= self.tol or full.n_unmodelled:
                    return self._fitted(now, full, history, change, constant, converged=change <= self.tol)
                enough = self.append_tol * _sampling_error(now, full)
                if after is not None and after.converged and best is None and change <= enough:
                    model = self._fitted(following, full, history, change, constant, converged=True)
                    return model.anchored_at(now)
                best = Iterate(now, full, objective, following)
                image = following.vector(frame)
                ahead = path.step(now.vector(frame), image, now.scale())
                now = following if ahead is image else following.at(ahead, step.least).with_signs_of(like)
            if number >= self.max_iter:
                return self._fitted(best.after, best.full, history, change, constant, converged=False)
            label = f"EM {number + 1}, {history[-1]:.6g} nats per row, change {change:.1e}"
        raise AssertionError("unreachable")

    def _fitted(
        self,
        now: Principal,
        full: Latent,
        history: Sequence[float],
        change: float,
        constant: int,
        *,
        converged: bool,
    ) -> PPCAModel:
        """The model of parameters, and of the statistics of the last pass."""
        observed = full.statistics[0].masked[-1] > 0
        now = replace(now, mean=np.where(observed, now.mean, np.nan))
        return fitted(now, full.totals, full.held, history, self._solver, change, converged, constant)

    def _minibatches(
        self, data: MatrixSpec, now: Principal, constant: int, holdout: Holdout | None
    ) -> Passes:
        """One pass with a step after each part of the data, and then full iterations."""
        parts = self._parts(data)
        steps = StepwiseEM(now, self.ridge, constant)
        for number in range(1 if parts > 1 else 0, parts):
            label = f"minibatch {number} of {parts - 1}"
            if steps.taken:
                label += f", {steps.log_likelihood:.6g} nats per row, change {steps.change:.1e}"
            empty = Latent([steps.now.factors], holdout=holdout)
            full = cast(Latent, (yield Pass(empty, label=label, part=Part(number, parts))))
            require_finite(full)
            steps.step(full)
        if self.max_iter == 1:
            return steps.model(self.tol)
        return (yield from self._iterations(steps.now, constant, holdout, [steps.log_likelihood]))

    def _parts(self, data: MatrixSpec) -> int:
        wanted = _MINIBATCHES if self.batch_rows is None else -(-data.n_rows // self.batch_rows)
        return max(1, min(wanted, data.n_rows))

    @property
    def _solver(self) -> str:
        return "minibatch" if self.method == "minibatch" else "em"


def _sampling_error(now: Principal, full: Latent) -> float:
    """The expected divergence of a model fitted to these rows from the truth, in nats per value.

    The divergence of a maximum-likelihood estimate is half its number of parameters over the number of rows.
    """
    d, k = int(np.isfinite(now.mean).sum()), len(now.components)
    return parameter_count(d, k) / (2.0 * full.rows * d)


def closed_form(found: PCAModel, k: int) -> PPCAModel:
    """The maximum of the likelihood (Tipping and Bishop 1999, equations 7 and 8)."""
    k = min(k, found.n_components)
    d, spectrum = found.n_features, found.explained_variance
    left = found.reconstruction_error + float(spectrum[k:].sum())
    noise = max(left / (d - k), LEAST_NOISE * found.total_variance / d)
    values = np.maximum(spectrum[:k], noise)
    trace = float(np.sum(spectrum[:k] / values)) + left / noise  # it is d, unless there is hardly any noise
    nats = -0.5 * (d * np.log(2 * np.pi) + float(np.log(values).sum()) + (d - k) * np.log(noise) + trace)
    return PPCAModel(
        mean=found.mean,
        components=found.components[:k],
        explained_variance=values,
        noise_variance=noise,
        n_samples=found.n_samples,
        n_observed=found.n_samples * d,
        solver="closed_form",
        log_likelihood=float(nats),
        log_likelihoods=np.array([nats]),
    )


def best_model(models: Sequence[PPCAModel], criteria: Sequence[float]) -> Model:
    """The model with the smallest criterion; it stores the criteria of all."""
    best = models[int(np.argmin(criteria))]
    if len(models) == 1:
        return best
    sizes = np.array([model.n_components for model in models], np.float64)
    return replace(best, candidates=sizes, criteria=np.array(criteria, np.float64))
