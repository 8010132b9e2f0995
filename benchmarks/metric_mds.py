"""Metric and nonmetric MDS: stresses beside scikit-learn's at equal time, and where that does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import data, scaling
from benchmarks.contender import Contender
from benchmarks.harness import Outcome, Settings, race
from benchmarks.report import Report, Target, figure, peak, seconds, verdict
from benchmarks.scaling_judge import KRUSKAL, STRESS, kruskal_of, stress_of

MANY, SOME, FEW, COLS, STARTS = 50_000, 5_000, 500, 20, 4
MEMORY_LIMIT = "2GiB"
STOCHASTIC, SMACOF, BY_LANDMARKS = "streamdr, stochastic", "streamdr, SMACOF", "streamdr, landmark MDS"
WAYS = {"random": "at random", "classical_mds": "by classical MDS"}
OWN, PEER = "streamdr", "scikit-learn"


def run(settings: Settings) -> Iterator[Report]:
    """Race at a size that fits in memory, at one that does not, and by ranks alone."""
    compared = some(settings)
    yield compared
    yield many(settings, compared.outcomes)
    yield few(settings)


def sized(settings: Settings, whole: int) -> int:
    """Return the number of rows at this scale."""
    return max(int(whole * settings.scale), min(whole, 300))


def some(settings: Settings) -> Report:
    """Return both of streamdr's algorithms beside scikit-learn's in the same time, and at its end."""
    rows = sized(settings, SOME)
    store = data.curved(settings.data, rows, COLS)
    judge = stress_of(store)
    own = {"name": "MetricMDS", "memory_limit": MEMORY_LIMIT}
    outcomes = race(
        [
            Contender(STOCHASTIC, scaling.stress_mds, store, own | {"algorithm": "stochastic"}),
            Contender(SMACOF, scaling.stress_mds, store, own | {"algorithm": "smacof"}),
        ],
        settings,
        judge,
    )
    start = {"n_init": 1}
    peers = []
    for init, way in WAYS.items():
        for ours in (STOCHASTIC, SMACOF):
            available = figure(outcomes, ours, seconds)
            limited = start | {"init": init, "seconds": available}
            peers.append(Contender(in_time(way, ours), scaling.sklearn_mds, store, limited))
        peers.append(Contender(to_its_end(way), scaling.sklearn_mds, store, start | {"init": init}))
    outcomes += race(peers, settings, judge)
    targets = [
        Target(
            f"stress, {ours} / scikit-learn's in its time, {way}",
            stress_ratio(outcomes, ours, in_time(way, ours), STRESS),
            1.0,
        )
        for ours in (STOCHASTIC, SMACOF)
        for way in WAYS.values()
    ]
    targets += [
        Target(
            f"stress, {ours} / scikit-learn's at its end, {way}",
            stress_ratio(outcomes, ours, to_its_end(way), STRESS),
            1.001,
        )
        for ours in (STOCHASTIC, SMACOF)
        for way in WAYS.values()
    ]
    return Report(f"Metric MDS: {rows:,} x {COLS} float32, k=2", outcomes, targets, [STOCHASTIC, SMACOF])


def in_time(way: str, ours: str) -> str:
    """Return the name of scikit-learn's MDS, given the time of one of streamdr's."""
    return f"scikit-learn, initialised {way}, in the time of {ours}"


def to_its_end(way: str) -> str:
    """Return the name of scikit-learn's MDS without a time limit."""
    return f"scikit-learn, initialised {way}, 300 iterations at most"


def many(settings: Settings, compared: Sequence[Outcome]) -> Report:
    """Return stochastic descent, and the landmark MDS from which it starts, for too many pairs for memory."""
    rows, fewer = sized(settings, MANY), sized(settings, SOME)
    store = data.curved(settings.data, rows, COLS)
    own = {"name": "MetricMDS", "memory_limit": MEMORY_LIMIT, "algorithm": "stochastic"}
    outcomes = race(
        [
            Contender(STOCHASTIC, scaling.stress_mds, store, own),
            Contender(BY_LANDMARKS, scaling.landmark_points, store, {"memory_limit": MEMORY_LIMIT}),
        ],
        settings,
        stress_of(store),
    )
    targets = [
        Target("stress / landmark MDS's", stress_ratio(outcomes, STOCHASTIC, BY_LANDMARKS, STRESS), 1.0)
    ]
    needs = figure(compared, to_its_end(WAYS["random"]), peak)
    message = (
        "" if needs is None else f"; scikit-learn's would need {needs * (rows / fewer) ** 2 / 1e9:.0f} GB"
    )
    return Report(f"Metric MDS: {rows:,} x {COLS} float32, k=2{message}", outcomes, targets, [STOCHASTIC])


def few(settings: Settings) -> Report:
    """Return nonmetric MDS from as many starts as scikit-learn's."""
    rows = sized(settings, FEW)
    store = data.curved(settings.data, rows, COLS)
    ranked = {"metric_mds": False, "n_init": STARTS, "init": "random", "normalized_stress": True}
    outcomes = race(
        [
            Contender(
                OWN,
                scaling.stress_mds,
                store,
                {"name": "NonmetricMDS", "memory_limit": MEMORY_LIMIT, "n_init": STARTS},
            ),
            Contender(PEER, scaling.sklearn_mds, store, ranked),
            Contender(
                f"{PEER}, initialised {WAYS['classical_mds']}",
                scaling.sklearn_mds,
                store,
                ranked | {"n_init": 1, "init": "classical_mds"},
            ),
        ],
        settings,
        kruskal_of(store),
    )
    targets = [Target("stress-1 / scikit-learn's", stress_ratio(outcomes, OWN, PEER, KRUSKAL), 1.0)]
    title = f"Nonmetric MDS: {rows:,} x {COLS} float32, k=2, {STARTS} starts"
    return Report(title, outcomes, targets, [OWN])


def stress_ratio(outcomes: Sequence[Outcome], ours: str, other: str, column: str) -> float | None:
    """Return the stress of one outcome divided by that of another."""
    own, its = verdict(outcomes, ours, column), verdict(outcomes, other, column)
    return None if own is None or its is None else own / its
