"""Results at hand take the place of tasks in a graph, as on a worker that has received them."""

from __future__ import annotations

import dask.array as da
import numpy as np

from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.remote_results import at_hand, results_at_hand


def test_results_at_hand_are_used_in_place_of_tasks_and_of_what_these_need():
    lazy = da.ones((20, 3), chunks=(10, 3)).map_blocks(lambda block: 1 / 0, dtype="f8", meta=np.empty((0, 0)))
    given = np.arange(30.0).reshape(10, 3)
    source = open_source(lazy)
    with results_at_hand({(lazy.name, 1, 0): given}):
        np.testing.assert_array_equal(source.read(Span(10, 20), Span(0, 3)), given)
    assert at_hand() == {}


def test_an_array_that_begins_at_any_byte_is_aligned_before_it_is_used():
    lazy = da.zeros((10, 3), chunks=(10, 3))
    unaligned = np.zeros(10 * 3 * 8 + 1, np.uint8)[1:].view(np.float64).reshape(10, 3)
    assert not unaligned.flags.aligned
    with results_at_hand({(lazy.name, 0, 0): unaligned}):
        assert open_source(lazy).read(Span(0, 10), Span(0, 3)).flags.aligned
