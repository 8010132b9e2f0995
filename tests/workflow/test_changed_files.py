"""Which of several files has changed is said by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr
from fits import stored

from streamdr.data import open_source
from streamdr.data.concatenated import ConcatenatedSource
from streamdr.data.missing_values import MissingValuesSource
from streamdr.workflow.changed_files import changed_file, recorded_files


def source_of(places):
    return ConcatenatedSource([open_source(place) for place in places], "x_*.zarr")


@pytest.fixture
def places(tmp_path):
    return [stored(tmp_path / f"x_{n}.zarr", np.full((8, 3), float(n)), (3, 3)) for n in (1, 2, 3)]


def facts_of(places):
    source = source_of(places)
    return json.loads(json.dumps(recorded_files(source, source.snapshot())))


def change(facts, places):
    source = source_of(places)
    return changed_file(facts, source, source.snapshot())


def test_nothing_is_said_of_files_that_are_as_they_were(places):
    facts = facts_of(places[:2])
    assert change(facts, places[:2]) is None
    assert change(facts, places) is None, "an added file is appended rows"


def test_a_changed_file_is_named(places):
    facts = facts_of(places)
    zarr.open_array(places[1], mode="r+")[0, 0] = 9
    assert change(facts, places) == f"{places[1]} has changed"


def test_a_file_that_vanished_is_named(places):
    facts = facts_of(places)
    assert change(facts, places[1:]) == f"{places[0]} is gone"
    assert change(facts, places[:1]) == f"{places[1]} is gone, and 1 more"


def test_a_file_between_others_is_named(places):
    assert change(facts_of(places[1:]), places) == f"{places[0]} was added before {places[1]}"
    assert change(facts_of(places), places[::-1]) == f"{places[2]} has moved before {places[0]}"


@pytest.mark.parametrize("files", [None, "x", [["a", 3]], [["a", "b", "c"]], [[1, 2, 3]]])
def test_a_record_of_another_form_says_nothing(files, places):
    assert change({"files": files}, places) is None


def test_one_store_records_no_files(places):
    source = open_source(places[0])
    assert recorded_files(source, source.snapshot()) == {}


def test_files_are_recorded_below_missing_values(places):
    source = MissingValuesSource(source_of(places), missing_value=np.float64(-9))
    recorded = recorded_files(source, source.snapshot())
    assert [name for name, _, _ in recorded["files"]] == list(map(str, places))
