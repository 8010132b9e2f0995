"""Probabilistic PCA with missing values: beside ppca_rs, on all cores, above its floor, on more rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks import data, floors, ours, peers
from benchmarks.contender import CORES, Contender
from benchmarks.harness import Outcome, Settings, race
from benchmarks.missing_values import NATS, IncompleteRows, likelihood_of
from benchmarks.report import Report, Target, figure, megabytes, note, peak, ratio, reads, verdict

SMALL = IncompleteRows(rows=100_000, cols=200, k=16, missing=0.2, dtype="f8")
TALL = IncompleteRows(rows=250_000, cols=500, k=20, missing=0.3, dtype="f4")
CLUSTERED = IncompleteRows(rows=100_000, cols=100, k=8, missing=0.2, dtype="f8")
MIXTURES, MIXTURE_ITERATIONS = 3, 4
TIMES = 4
WITHIN, ITERATIONS = 1e-6, 20
OWN, MINIBATCHES, PEER, FLOOR = "streamdr", "streamdr, minibatches, one read", "ppca_rs", "floor"
LARGER = f"streamdr, {TIMES} times the rows"
PACE = "seconds per iteration"
ALONE, ALL = "streamdr, one worker", f"streamdr, {CORES} workers"

# Not included, because they take more than a minute: pyppca (192 iterations and 144 s of CPU time, to a mean
# log-likelihood lower by 0.003 nats), scikit-learn's IterativeImputer (minutes for one over 5,000 rows).


def run(settings: Settings) -> Iterator[Report]:
    """Compare with a peer, one worker, the floor of an iteration, and a fit of four times the rows."""
    small, tall = scaled(SMALL, settings), scaled(TALL, settings)
    yield beside_peers(small, settings)
    yield on_all_cores(small, settings)
    yield mixture_on_all_cores(scaled(CLUSTERED, settings), settings)
    yield above_floor(small, "500MB", settings)
    yield above_floor(tall, "1GiB", settings)
    yield at_four_times_the_rows(tall, settings)


def scaled(whole: IncompleteRows, settings: Settings) -> IncompleteRows:
    """Return the same with fewer rows, but still many times its columns."""
    return replace(whole, rows=max(int(whole.rows * settings.scale), 10 * whole.cols))


def beside_peers(rows: IncompleteRows, settings: Settings) -> Report:
    """Run streamdr to convergence and with one read, and the same method of a peer to the same likelihood."""
    store, k = rows.store(settings.data), rows.k
    judge, chosen = likelihood_of(store), {"k": k, "memory_limit": "500MB"}
    outcomes = race(
        [
            Contender(OWN, ours.ppca, store, chosen),
            Contender(MINIBATCHES, ours.ppca, store, chosen | {"method": "minibatch", "max_iter": 1}),
        ],
        settings,
        judge,
    )
    goal = verdict(outcomes, OWN, NATS)
    if goal is not None:
        until = {"k": k, "goal": goal, "within": WITHIN, "iterations": ITERATIONS}
        outcomes += race([Contender(PEER, peers.ppca_rs, store, until)], settings, judge)
    ended = f"streamdr / ppca_rs, to the same likelihood or for {ITERATIONS} iterations"
    targets = [
        Target(ended, ratio(outcomes, OWN, PEER), 1 / 30),
        Target("one iteration, streamdr / ppca_rs", pace(outcomes), 1 / 10),
        Target("peak, MB", figure(outcomes, OWN, megabytes), 500),
        Target("fits that have not converged", unconverged(outcomes, [OWN]), 0),
        Target("reads by minibatches", figure(outcomes, MINIBATCHES, reads), 1.05),
        Target("likelihood by minibatches, relative error", relative_difference(outcomes, MINIBATCHES), 0.01),
    ]
    return Report(f"PPCA: {rows.title}", outcomes, targets, [OWN])


def on_all_cores(rows: IncompleteRows, settings: Settings) -> Report:
    """Run the fit with one worker, and with one for each core."""
    store, chosen = rows.store(settings.data), {"k": rows.k, "memory_limit": "500MB"}
    outcomes = race(
        [
            Contender(ALONE, ours.ppca, store, chosen | {"workers": 1}),
            Contender(ALL, ours.ppca, store, chosen),
        ],
        settings,
        lambda found: {},
    )
    return Report(f"PPCA on all cores: {rows.title}", outcomes, of_all_cores(outcomes), [ALONE])


def mixture_on_all_cores(rows: IncompleteRows, settings: Settings) -> Report:
    """Run some iterations of a mixture with one worker, and with one for each core."""
    chosen = {"k": rows.k, "mixtures": MIXTURES, "memory_limit": "500MB", "max_iter": MIXTURE_ITERATIONS}
    store = rows.store(settings.data)
    outcomes = race(
        [
            Contender(ALONE, ours.ppca_mixture, store, chosen | {"workers": 1}),
            Contender(ALL, ours.ppca_mixture, store, chosen | {"workers": CORES}),
        ],
        settings,
        lambda found: {},
    )
    title = f"A mixture of {MIXTURES} PPCAs on all cores: {rows.title}, {MIXTURE_ITERATIONS} iterations"
    return Report(title, outcomes, of_all_cores(outcomes), [ALONE])


def of_all_cores(outcomes: Sequence[Outcome]) -> list[Target]:
    """Return the targets of a fit with one worker for each core."""
    idle = figure(outcomes, ALL, lambda outcome: outcome.seconds / outcome.cpu)
    return [
        Target(f"seconds with {CORES} workers / with one", ratio(outcomes, ALL, ALONE), 1 / 1.7),
        Target(f"seconds / seconds of CPU time, {CORES} workers", idle, 1 / 1.8),
    ]


def above_floor(rows: IncompleteRows, memory_limit: str, settings: Settings) -> Report:
    """Race one iteration of EM against the reading and the products that are in it."""
    store = rows.store(settings.data)
    outcomes = race(
        [
            Contender(FLOOR, floors.latent, store, {"k": rows.k}, blas_threads=1),
            Contender(OWN, ours.ppca_pass, store, {"k": rows.k, "memory_limit": memory_limit}),
        ],
        settings,
        lambda found: {},
    )
    targets = [Target("streamdr / floor", ratio(outcomes, OWN, FLOOR), 1.4)]
    return Report(f"PPCA, one iteration: {rows.title}", outcomes, targets, [FLOOR])


def at_four_times_the_rows(rows: IncompleteRows, settings: Settings) -> Report:
    """Fit a store, and one of four times the rows."""
    store, chosen = rows.store(settings.data), {"k": rows.k, "memory_limit": "1GiB"}
    outcomes = race(
        [
            Contender(OWN, ours.ppca, store, chosen),
            Contender(LARGER, ours.ppca, data.repeated(store, TIMES), chosen),
        ],
        settings,
        lambda found: {},
    )
    targets = [
        Target("reads of the larger store, the start included", figure(outcomes, LARGER, reads), 8),
        Target("fits that have not converged", unconverged(outcomes, [OWN, LARGER]), 0),
        Target("seconds at 4 times the rows / seconds", ratio(outcomes, LARGER, OWN), 4.6),
        Target("peak at 4 times the rows / peak", ratio(outcomes, LARGER, OWN, of=peak), 1.05),
        Target("peak, MB (the limit was 1 GiB)", figure(outcomes, LARGER, megabytes), 2**30 / 1e6),
    ]
    return Report(f"PPCA, the whole fit: {rows.title}, and {TIMES} times the rows", outcomes, targets, [OWN])


def pace(outcomes: Sequence[Outcome]) -> float | None:
    """Return the time of an iteration of streamdr, with the start, divided by that of ppca_rs, without it."""
    mine, its = note(outcomes, OWN, PACE), note(outcomes, PEER, PACE)
    return None if mine is None or its is None else mine / its


def relative_difference(outcomes: Sequence[Outcome], name: str) -> float | None:
    """Return the difference of a likelihood from that of streamdr, relative to it."""
    other, own = verdict(outcomes, name, NATS), verdict(outcomes, OWN, NATS)
    return None if other is None or own is None else abs(other - own) / abs(own)


def unconverged(outcomes: Sequence[Outcome], names: Sequence[str]) -> float:
    """Return the number of these fits that did not converge, including those that failed."""
    return float(sum(note(outcomes, name, "converged") != 1.0 for name in names))
