"""Probabilistic PCA: in closed form where nothing is missing, by EM where something is."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import count
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from streamdr.accumulators import Accumulator, Latent, Pairwise, Sample, Visible
from streamdr.accumulators.holdout import Holdout
from streamdr.blocks import Array, MatrixSpec, Part
from streamdr.errors import DataError, MissingValuesError, ParameterError
from streamdr.linalg import constant_columns
from streamdr.methods.acceleration import ROUNDING, Anderson
from streamdr.methods.base import Model, Pass, Passes, Route, Stream
from streamdr.methods.checks import no_values, require, require_finite, require_products, whole_numbers
from streamdr.methods.em import LEAST_NOISE, Principal, divergence, maximise
from streamdr.methods.outlines import ppca_outline
from streamdr.methods.parameters import require_types
from streamdr.methods.pca import PCA
from streamdr.methods.pca_model import PCAModel
from streamdr.methods.ppca_model import PPCAModel, parameter_count
from streamdr.methods.ppca_routes import em_route
from streamdr.methods.ppca_stream import PPCAStream
from streamdr.methods.sampling import sampled
from streamdr.methods.side_by_side import side_by_side
from streamdr.methods.stepwise import PAIRWISE_COLUMNS, Beginning, Steps, fitted, sample_rows

_MINIBATCHES = 16
_START_ROWS = 20_000


class Look(NamedTuple):
    """All rows as some parameters see them, what these are worth, and those that follow from them."""

    now: Principal
    full: Latent
    worth: float
    after: Principal


@dataclass(eq=False)
class PPCA:
    """Probabilistic PCA of data of any length, with or without missing values (NaN).

    Parameters
    ----------
    n_components : int or list of int
        How many latent variables; of a list the best is chosen, by the likelihood of held-out values where
        `holdout` is set, else by BIC. All of them are fitted with one reading of the data.
    method : "auto", "closed_form", "em" or "minibatch"
        `"closed_form"` is exact in one pass for complete data; `"em"` takes missing values, and reads the
        data as often as it takes; `"minibatch"` begins with one read of steps after each part of the data,
        and goes on like `"em"`. `"auto"` is `"closed_form"` until a value is found missing.
    batch_rows : int or None
        Rows of a minibatch; None for a sixteenth of all.
    tol : float
        EM stops when a step moves the model by less than this, in nats a value (Kullback-Leibler).
    append_tol : float
        When rows were appended, the first step of EM reads the new rows only. It is the last one as long as
        it moves the model by less than this part of the sampling error that so many rows leave anyway; 0
        iterates to `tol`, reading all rows.
    max_iter : int
        The most iterations of EM, each of which reads the data once.
    ridge : float
        Shrinks loadings, as if each had been seen that many times more with nothing to show for it: for very
        sparse data.
    holdout : float
        The part of all values that is hidden from the fit, and predicted, to see how well that goes.
    random_state : int
        Seeds what is held out, and the start of wide data.
    solver : "auto", "covariance", "gram" or "krylov"
        How `"closed_form"` finds the components, as in PCA.
    """

    name: ClassVar[str] = "ppca"
    model: ClassVar[type] = PPCAModel
    added_parameters: ClassVar[Mapping[str, Any]] = {"append_tol": 0.5}
    """Parameters that earlier versions did not have, with what stands for those."""

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

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        wanted = self.sizes
        for k in wanted:
            require(k >= 1, "n_components", f"{k} is not at least 1")
        methods = ("auto", "closed_form", "em", "minibatch")
        require(self.method in methods, "method", f"{self.method!r} is none of {', '.join(methods)}")
        PCA(max(wanted), solver=self.solver).check()
        if self.batch_rows is not None:
            require(self.batch_rows >= 1, "batch_rows", f"{self.batch_rows} is not at least 1")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")
        require(self.append_tol >= 0, "append_tol", f"{self.append_tol} is negative")
        require(self.max_iter >= 1, "max_iter", f"{self.max_iter} is not at least 1")
        require(self.ridge >= 0, "ridge", f"{self.ridge} is negative")
        require(
            0 <= self.holdout < 1, "holdout", f"{self.holdout} is not a part of 1, at least 0 and below 1"
        )
        if self.method == "closed_form":
            require(
                self.holdout == 0,
                "holdout",
                "hides values, and the closed form needs them all: set method to em, or holdout to 0",
            )
            require(self.ridge == 0, "ridge", "is not for the closed form: set method to em, or ridge to 0")

    @property
    def sizes(self) -> list[int]:
        """The numbers of components to choose from."""
        return whole_numbers("n_components", self.n_components)

    def using(self, route: str) -> Self:
        """The same with its method, or the solver of its closed form, fixed."""
        if route in ("em", "minibatch"):
            return replace(self, method=cast(Any, route))
        return replace(self, solver=cast(Any, route))

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The ways that there are, with what they would take."""
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
                f"ask for {data.n_cols - 1} or fewer",
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
        """The closed form until a value is found missing, and EM from then on."""
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
        """A model of the most components."""
        return [ppca_outline(data, max(self.sizes))]

    def passes(self, data: MatrixSpec, start: PPCAModel | None = None) -> Passes:
        """The passes of the chosen method."""
        holes_known = self.method == "auto" and start is not None and start.solver != "closed_form"
        if self.method in ("em", "minibatch") or holes_known:
            return self._em(data, start)
        return self._closed_form(data)

    def stream(self, n_cols: int, start: PPCAModel | None = None, n_rows: int = 0) -> Stream | None:
        """What `partial_fit` feeds; None where the statistics of one pass will do."""
        if self.method == "closed_form":
            return None
        require(
            len(self.sizes) == 1, "n_components", "partial_fit needs one number of components, not a choice"
        )
        return PPCAStream(self, n_cols) if start is None else PPCAStream.after(self, start, n_rows)

    def _pca(self, k: int) -> PCA:
        return PCA(k, solver=self.solver, ddof=0, random_state=self.random_state)

    def _closed_form(self, data: MatrixSpec) -> Passes:
        try:
            found = yield from self._pca(max(self.sizes)).passes(data)
        except MissingValuesError as missing:
            if self.method == "closed_form":
                raise ParameterError(
                    "method", f"the closed form needs complete data; set it to auto or em: {missing}"
                ) from missing
            return (yield from self._em(data, None))
        models = [closed_form(cast(PCAModel, found), k) for k in self.sizes]
        return chosen(models, [model.bic for model in models])

    def _em(self, data: MatrixSpec, start: PPCAModel | None) -> Passes:
        holdout = (yield from self._held_out(data)) if self.holdout else None
        if start is not None and start.n_components in self.sizes:
            gone_on = yield from self._iterations(start.anchor, start.constant_features, holdout, after=start)
            if cast(PPCAModel, gone_on).new_features == 0:
                return gone_on
        beginning = yield from self._beginning(data, holdout)
        constant = self._constant(beginning)
        if self.method == "minibatch":
            runs = [self._minibatches(data, beginning.principal(k), constant, holdout) for k in self.sizes]
        else:
            runs = [self._iterations(beginning.principal(k), constant, holdout) for k in self.sizes]
        del beginning  # it may be as large as all that follows
        models = cast("list[PPCAModel]", (yield from side_by_side(runs)))
        if self.holdout:
            if any(model.held_out is None for model in models):
                raise ParameterError("holdout", f"{self.holdout} of the values are none: ask for more")
            return chosen(models, [-float(cast(Array, model.held_out)[1]) for model in models])
        return chosen(models, [model.bic for model in models])

    def _held_out(self, data: MatrixSpec) -> Generator[Pass, Accumulator, Holdout]:
        """The values that are hidden. A column that would be left with none keeps all that it has."""
        holdout = Holdout(float(self.holdout), int(self.random_state))
        while True:
            request = Pass(Visible(data.n_cols, holdout), label="what is held out")
            bare = cast(Visible, (yield request)).bare
            if not bare:
                return holdout
            holdout = replace(holdout, spared=tuple(sorted({*holdout.spared, *bare})))

    def _beginning(
        self, data: MatrixSpec, holdout: Holdout | None
    ) -> Generator[Pass, Accumulator, Beginning]:
        """A look at a part of the data: covariances, or rows where there are too many features for those."""
        parts = self.first_parts(data)
        part = Part(0, parts) if parts > 1 else None
        if data.n_cols > PAIRWISE_COLUMNS:
            size = sample_rows(data, max(self.sizes))
            empty_sample = Sample(data.n_cols, size, int(self.random_state))
            return Beginning(None, (yield from sampled(empty_sample, data, "a sample to start from", parts)))
        empty = Pairwise(data.n_cols, holdout)
        pairs = cast(Pairwise, (yield Pass(empty, label="covariances to start from", part=part)))
        if part is not None and not (pairs.counts > 1).all():  # what a part lacks may be in the rest
            pairs = cast(Pairwise, (yield Pass(empty, label="covariances to start from")))
        return Beginning(pairs, None)

    def first_parts(self, data: MatrixSpec) -> int:
        """One of how many parts of the data EM looks at to start from."""
        return self._parts(data) if self.method == "minibatch" else max(1, data.n_rows // _START_ROWS)

    def minibatch(self, data: MatrixSpec) -> Part | None:
        """One of the minibatches; None where all rows are one."""
        parts = self._parts(data)
        return Part(0, parts) if parts > 1 else None

    def _constant(self, beginning: Beginning) -> int:
        """How many features had one value only. Data that nothing can be learnt from is refused."""
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
                "have any value",
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
        """EM until a step hardly moves the model: then that is the model, and its likelihood is known.

        Steps are extrapolated. One that makes the data less likely is taken back; if that was a step of EM
        itself, rounding is all that is left to be gained.

        Where it goes on `after` a model of fewer rows, components point as those of that model do: an
        embedding that is refreshed night after night is not to change its signs. One step may then be all
        (`append_tol`). It is one from where EM had converged, the anchor, so that the next night, too,
        finds the pass over all old rows in the ledger.
        """
        history, path, frame = list(done), Anderson(), now.loadings
        like = None if after is None else after.principal
        best: Look | None = None
        change = np.inf
        label = f"EM {len(history) + 1}"
        for number in count(len(history) + 1):
            full = cast(Latent, (yield Pass(Latent([now.factors], holdout=holdout), label=label)))
            if best is None:
                require_finite(full)
            worth = full.log_likelihood - self.ridge * float(np.sum(now.loadings**2)) / (2 * now.noise)
            if best is not None and not worth >= best.worth - ROUNDING * abs(best.worth):
                if now is best.after:
                    return self._fitted(best.now, best.full, history, change, constant, settled=True)
                now = best.after
                path.forget()
            else:
                history.append(full.log_likelihood / full.rows)
                step = maximise(full.statistics[0], now.factors, ridge=self.ridge)
                following = step.after.facing(like)
                change = divergence(now.factors, following.factors)
                if change <= self.tol or full.unknown:
                    return self._fitted(now, full, history, change, constant, settled=change <= self.tol)
                enough = self.append_tol * _sampling_error(now, full)
                if after is not None and after.converged and best is None and change <= enough:
                    model = self._fitted(following, full, history, change, constant, settled=True)
                    return model.anchored_at(now)
                best = Look(now, full, worth, following)
                image = following.vector(frame)
                ahead = path.step(now.vector(frame), image, now.scale())
                now = following if ahead is image else following.at(ahead, step.least).facing(like)
            if number >= self.max_iter:
                return self._fitted(best.after, best.full, history, change, constant, settled=False)
            label = f"EM {number + 1}, {history[-1]:.6g} nats a row, change {change:.1e}"
        raise AssertionError("counting has no end")

    def _fitted(
        self,
        now: Principal,
        full: Latent,
        history: Sequence[float],
        change: float,
        constant: int,
        *,
        settled: bool,
    ) -> PPCAModel:
        seen = full.statistics[0].masked[-1] > 0
        now = replace(now, mean=np.where(seen, now.mean, np.nan))
        return fitted(now, full.totals, full.held, history, self._solver, change, settled, constant)

    def _minibatches(
        self, data: MatrixSpec, now: Principal, constant: int, holdout: Holdout | None
    ) -> Passes:
        """One read of steps after each part, and then full iterations."""
        parts = self._parts(data)
        steps = Steps(now, self.ridge, constant)
        for number in range(1 if parts > 1 else 0, parts):
            label = f"minibatch {number} of {parts - 1}"
            if steps.taken:
                label += f", {steps.log_likelihood:.6g} nats a row, change {steps.change:.1e}"
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
    """How far a model fitted to so many rows is expected to be from the truth, in nats a value.

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
    trace = float(np.sum(spectrum[:k] / values)) + left / noise  # d, unless there is hardly any noise
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


def chosen(models: Sequence[PPCAModel], criteria: Sequence[float]) -> Model:
    """The model of the smallest criterion, which remembers those of the others."""
    best = models[int(np.argmin(criteria))]
    if len(models) == 1:
        return best
    sizes = np.array([model.n_components for model in models], np.float64)
    return replace(best, candidates=sizes, criteria=np.array(criteria, np.float64))
