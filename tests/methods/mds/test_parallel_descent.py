"""Descents use all workers with the same bits, heed a stop, and are repeated to the same result."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import plain_mds as plain
import pytest
from fits import bits, fit, stored

from streamdr.core import blocks
from streamdr.core.accumulator import copied
from streamdr.core.blocks import Array, Block, Span
from streamdr.core.progress import PassStart, Silent
from streamdr.data import open_source
from streamdr.engine import runner
from streamdr.errors import Interrupted
from streamdr.methods.mds import MetricMDS, NonmetricMDS
from streamdr.methods.mds.matchings import PointMatchings, StoredMatchings, round_robin
from streamdr.methods.mds.sgd import PairDescent

SGD, SMACOF = "stochastic", "smacof"
ROUNDS = 7


def rows_of(n=75, d=5, kind="f8"):
    """Rows with a large offset, a constant column, repeated rows, and a row of zeros."""
    rows = np.random.default_rng(3).normal(size=(n, d)) * np.linspace(4, 0.01, d) + 100
    rows[:, 1] = 7.0
    rows[n // 2] = rows[0]
    rows[-1] = 0.0
    return rows.astype(kind)


def incomplete(rows):
    """Distances of rows, some of them missing."""
    wanted = plain.distances(rows)
    missing = np.triu(np.random.default_rng(1).random(wanted.shape) < 0.2, 1)
    return np.where(missing | missing.T, np.nan, wanted)


CASES = {
    "stochastic, points": (MetricMDS(2, algorithm=SGD, n_epochs=3), rows_of()),
    "stochastic, one dimension": (MetricMDS(1, algorithm=SGD, n_epochs=3, stress="sammon"), rows_of(40)),
    "stochastic, float32, city blocks": (
        MetricMDS(3, algorithm=SGD, n_epochs=2, metric="cityblock", stress="relative"),
        rows_of(kind="f4"),
    ),
    "stochastic, two points": (MetricMDS(1, algorithm=SGD, n_epochs=2), rows_of(2)),
    "stochastic, distances": (
        MetricMDS(2, algorithm=SGD, n_epochs=2, metric="precomputed"),
        incomplete(rows_of(41)),
    ),
    "SMACOF": (MetricMDS(2, algorithm=SMACOF, max_iter=6), rows_of()),
    "SMACOF, two starts": (
        MetricMDS(3, algorithm=SMACOF, max_iter=4, n_init=2, stress="sammon"),
        rows_of(60),
    ),
    "gradient, missing distances": (
        MetricMDS(2, algorithm="gradient", max_iter=4, metric="precomputed"),
        incomplete(rows_of(41)),
    ),
    "nonmetric": (NonmetricMDS(2, max_iter=4), rows_of(50)),
}


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets how much of the rows in memory a task takes."""
    return lambda n_bytes: monkeypatch.setattr(blocks, "IN_MEMORY_BYTES", n_bytes)


@pytest.mark.parametrize("case", CASES)
def test_same_bits_on_any_number_of_workers(case, small_tasks):
    small_tasks(1 << 11)
    method, values = CASES[case]
    one, two, eight = (bits(fit(method, open_source(values), workers=n).model) for n in (1, 2, 8))
    assert one == two == eight


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(SGD)])
def test_rounds_are_divided_into_tasks_without_changing_a_bit(case, small_tasks):
    method, values = CASES[case]
    found = []
    for n_bytes in (1, 1 << 11, 1 << 30):
        small_tasks(n_bytes)
        found.append(bits(fit(method, open_source(values), workers=3).model))
    assert found[0] == found[1] == found[2]


# Stochastic descent, round by round


def of_points(stress="normalized", weights=None, n=17):
    return PointMatchings("euclidean", rows_of(n), stress, weights, 5)


def of_distances(stress="normalized", weights=None, n=17):
    matchings = round_robin(n, 4, np.random.default_rng(2))
    found = np.full((n, len(matchings)), np.nan)
    wanted = incomplete(rows_of(n))
    for number, (left, right) in enumerate(matchings):
        found[left, number], found[right, number] = wanted[left, right], wanted[right, left]
    return StoredMatchings(matchings, found, stress, weights, 5)


def rounds(start=0, stop=ROUNDS):
    return Block(Span(start, stop), np.arange(start, stop, dtype=np.float64)[:, None])


def begun(matchings, k=2, step=0.3, n=17):
    start = np.random.default_rng(9).normal(size=(n, k))
    start[3] = start[4]
    return PairDescent(matchings, start, epoch=1, step=step)


def moved_one_by_one(descent: PairDescent) -> Array:
    """The configuration after all rounds, pair by pair."""
    at = descent.start.copy()
    for number in range(ROUNDS):
        for left, right, target, weight in zip(*descent.matchings.pairs(1, number), strict=True):
            apart = float(np.linalg.norm(at[left] - at[right]))
            if apart > 0 and weight > 0:
                share = min(descent.step * weight, 1.0) / 2 * (apart - target) / apart
                along = at[left] - at[right]
                at[left], at[right] = at[left] - share * along, at[right] + share * along
    return at


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("kind", ["normalized", "relative", "sammon"])
@pytest.mark.parametrize("made", [of_points, of_distances])
def test_a_round_moves_every_pair_as_one_by_one(made, kind, k):
    weights = np.random.default_rng(4).uniform(0.5, 2, 17)
    weights[5] = 0.0
    descent = begun(made(kind, weights), k)
    descent.update(rounds())
    np.testing.assert_allclose(descent.embedding, moved_one_by_one(descent), rtol=0, atol=1e-9)


@pytest.mark.parametrize("made", [of_points, of_distances])
def test_rounds_that_come_early_wait_for_those_before_them(made):
    whole = begun(made())
    whole.update(rounds())
    a, b, c = (copied(whole.empty_like()) for _ in range(3))
    for part, bounds in ((a, (0, 2)), (b, (2, 3)), (c, (3, ROUNDS))):
        part.update(rounds(*bounds))
    np.testing.assert_array_equal(b.embedding, whole.start)
    right = copied(b)
    right.merge(c)
    last = copied(a)
    last.merge(copied(right))  # a + (b + c)
    a.merge(b)
    a.merge(c)  # (a + b) + c
    empty = whole.empty_like()
    empty.merge(a)
    for each in (a, last, empty):
        np.testing.assert_array_equal(each.embedding, whole.embedding)
        assert sorted(each.arrays()) == ["done", "embedding"], "a round is still waiting"


# A stop


class StopAt(Silent):
    """Sets an event, from another thread, when the label of a pass contains some words."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.stop = threading.Event()
        self.shown: list[str] = []

    def message(self, text: str) -> None:
        self.shown.append(text)
        if self.words in text:
            setter = threading.Thread(target=self.stop.set)
            setter.start()
            setter.join()


STOPPED = {
    "epoch 2 of 4": MetricMDS(2, algorithm=SGD, n_epochs=4),
    "SMACOF 3": MetricMDS(2, algorithm=SMACOF, max_iter=8, tol=0.0),
    "gradient descent 3": MetricMDS(2, algorithm="gradient", max_iter=8, tol=0.0),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("words", STOPPED)
def test_a_stop_ends_a_descent_and_the_next_run_has_the_same_result(
    words, workers, tmp_path, small_tasks, monkeypatch
):
    monkeypatch.setattr(runner, "_MESSAGE_SECONDS", -1.0)  # every pass shows its label
    small_tasks(1 << 11)
    path = stored(tmp_path / "x.zarr", rows_of())
    method = STOPPED[words]
    whole = fit(method, path, workers=workers)
    progress, settings = StopAt(words), {"workers": workers, "ledger": tmp_path / "ledger"}
    with pytest.raises(Interrupted):
        fit(method, path, progress=progress, stop=progress.stop, **settings)
    assert words in progress.shown[-1], "the descent went on"
    again = fit(method, path, **settings)
    assert again.bytes_read == whole.bytes_read - rows_of().nbytes, "the first pass was in the ledger"
    assert bits(again.model) == bits(whole.model)


class StopSoon(Silent):
    """Lets another thread set an event at any time after the first pass."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, begun: PassStart) -> None:
        self._threads.append(threading.Thread(target=self.stop.set))

    def finish(self) -> None:
        self._threads[-1].start()


@pytest.mark.parametrize(
    "method", [MetricMDS(2, algorithm=SGD, n_epochs=10**9), NonmetricMDS(2, max_iter=10**9)]
)
def test_a_descent_that_would_not_end_is_stopped(method):
    progress = StopSoon()
    with pytest.raises(Interrupted):
        fit(method, open_source(rows_of()), workers=2, progress=progress, stop=progress.stop)
