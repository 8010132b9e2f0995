"""Columns by name, pattern, number, range and mask; what is not there is one clear error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from counts import sparse
from narrowing import checked
from sklearn.base import clone

import streamdr
from streamdr.core.blocks import MatrixSpec
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine.fitting import fit
from streamdr.errors import ParameterError
from streamdr.methods.chain import ChainModel, chain_of
from streamdr.methods.pca import PCA
from streamdr.methods.steps import SelectColumns, SelectVariance
from streamdr.methods.steps.base import ChoiceModel

NAMES = ("MT-CO1", "MT-ND2", "CD3E", "CD3D", "MALAT1", "CD3E", "0:2", "3")
SPEC = MatrixSpec(20, len(NAMES), np.dtype("f4"), feature_names=NAMES)
ROWS = np.random.default_rng(0).normal(size=(20, len(NAMES))) * np.arange(1, len(NAMES) + 1)


def kept(spec=SPEC, **parameters):
    step = SelectColumns(**parameters)
    step.check()
    return step.fitted(spec).reads.tolist()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("MALAT1", [4]),
        (["MALAT1", "MT-CO1"], [0, 4]),
        ("CD3E", [2, 5]),
        ("MT-*", [0, 1]),
        ("CD3[DX]", [3]),
        ("MT-?D?", [1]),
        (["0:3"], [0, 1, 2]),
        (["6:"], [6, 7]),
        ([":-6"], [0, 1]),
        (["-2:"], [6, 7]),
        ([3, -1, 0], [0, 3, 7]),
        (["0:2"], [6]),
        (["3"], [7]),
        (np.array([1, 5]), [1, 5]),
        (np.arange(8) % 2 == 0, [0, 2, 4, 6]),
        ([True] + [False] * 7, [0]),
        (range(2, 4), [2, 3]),
        (["CD3*", 4, "1:2"], [1, 2, 3, 4, 5]),
    ],
)
def test_columns_are_found_and_keep_the_order_of_the_data(columns, expected):
    assert kept(columns=columns) == expected
    if len(expected) < 8:
        assert kept(exclude=columns) == [place for place in range(8) if place not in expected]


def test_what_is_excluded_is_taken_from_what_is_chosen():
    assert kept(columns=["MT-*", "CD3*"], exclude="CD3E") == [0, 1, 3]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"columns": "CD3F"}, r"columns: no column is called 'CD3F' \(did you mean 'CD3."),
        ({"columns": "XYZ"}, "a step before this one has left it out; there are 8 columns"),
        ({"exclude": ["MT-CO1", "ACTB*"]}, r"exclude: no column has a name such as 'ACTB\*'"),
        ({"columns": 8}, "columns: 8 is not a list"),
        ({"columns": [8]}, "there is no column 8 among the 8 columns"),
        ({"columns": [-9]}, "there is no column -9"),
        ({"columns": ["2:9"]}, "the range '2:9' is not within the 8 columns"),
        ({"columns": ["5:5"]}, "the range '5:5' is not within"),
        ({"columns": []}, "empty list"),
        ({"columns": [1.5]}, "1.5 is neither the name nor the number of a column"),
        ({"columns": [True, 2]}, "True is neither the name"),
        ({"columns": [True, False]}, "the mask has 2 values, and there are 8 columns"),
        ({"columns": np.ones((2, 2))}, "an array of 2 dimensions"),
        ({"exclude": ["0:2", "1:"]}, None),
        ({"exclude": [":"]}, "exclude: select_columns leaves none of the 8 columns"),
        ({"columns": [False] * 8}, "columns: select_columns leaves none"),
    ],
)
def test_what_is_not_there_is_one_clear_error(parameters, message):
    if message is None:
        assert kept(**parameters) == [0]
        return
    with pytest.raises(ParameterError, match=message):
        kept(**parameters)


def test_names_need_columns_with_names():
    with pytest.raises(ParameterError, match="'CD3E' is a name, and the columns at this step have none"):
        kept(replace(SPEC, feature_names=None), columns=["CD3E"])
    with pytest.raises(ParameterError, match=r"'CD\*' is a name"):
        kept(replace(SPEC, feature_names=None), columns=["CD*"])


def test_columns_of_frames_are_chosen_by_name_and_keep_theirs(tmp_path):
    frame = pd.DataFrame(ROWS[:, :5], columns=NAMES[:5])
    step = streamdr.SelectColumns(["CD3*"]).fit(frame)
    np.testing.assert_array_equal(step.transform(frame), ROWS[:, 2:4])
    assert step.get_feature_names_out().tolist() == ["CD3E", "CD3D"]
    again = streamdr.load_model(step.save(tmp_path / "m.zarr"))
    np.testing.assert_array_equal(again.transform(frame), ROWS[:, 2:4])
    masked = streamdr.SelectColumns(np.arange(5) > 2).fit(frame)
    again = streamdr.load_model(masked.save(tmp_path / "n.zarr"))
    np.testing.assert_array_equal(again.fit(frame).transform(frame), ROWS[:, 3:5])


@pytest.mark.parametrize(
    "columns",
    [
        range(2, 4),
        pd.Series([False, False, True, True, False], index=list(NAMES[:5])),
        pd.array([False, False, True, True, False], dtype="boolean"),
        pd.Index(NAMES[2:4]),
        pl.Series(["CD3D", "CD3E"]),
        np.array(NAMES[2:4], dtype=object),
        (2, "CD3D"),
    ],
    ids=lambda columns: f"{type(columns).__module__.partition('.')[0]} {type(columns).__name__}",
)
def test_columns_may_be_a_column_of_a_frame_and_are_saved(columns, tmp_path):
    frame = pd.DataFrame(ROWS[:, :5], columns=NAMES[:5])
    step = clone(streamdr.SelectColumns(columns)).fit(frame)
    chain = streamdr.Chain([streamdr.SelectColumns(columns), streamdr.PCA(1)]).fit(frame)
    for number, one in enumerate((step, chain)):
        again = streamdr.load_model(one.save(tmp_path / f"{number}.zarr"))
        np.testing.assert_array_equal(again.transform(frame), one.transform(frame))
        np.testing.assert_array_equal(clone(again).fit(frame).transform(frame), one.transform(frame))
    assert step.get_feature_names_out().tolist() == ["CD3E", "CD3D"]


def test_sparse_rows_keep_their_columns_in_order():
    rows = np.where(ROWS > 1, ROWS, 0.0)
    model = SelectColumns([5, 0, 3]).fitted(SPEC)
    np.testing.assert_array_equal(model.chosen(sparse(rows)).toarray(), rows[:, [0, 3, 5]])


def named(names=NAMES):
    source = open_source(ROWS)
    source.feature_names = names
    return source


def test_a_step_may_choose_by_name_among_columns_that_are_known_only_after_a_fit():
    """The plan of the chain has only the names that there may be."""
    steps = chain_of([SelectVariance(4), SelectColumns(["MALAT1", "0:2"]), PCA(1)])
    model = checked(ChainModel, fit(steps, named(), Execution(workers=1)).model)
    chosen, named_ones = (checked(ChoiceModel, each) for each in model.models[:2])
    assert chosen.reads.tolist() == [4, 5, 6, 7]
    assert named_ones.reads.tolist() == [0, 2]
    np.testing.assert_allclose(
        np.abs(model.transform(ROWS)), np.abs(streamdr.PCA(1).fit_transform(ROWS[:, [4, 6]])), rtol=1e-10
    )


@pytest.mark.parametrize(
    "before", [SelectVariance(4), SelectColumns(exclude="MT-*")], ids=["found in a pass", "given"]
)
def test_a_column_that_a_step_has_left_out_is_an_error(before):
    steps = chain_of([before, SelectColumns(["MT-CO1"]), PCA(1)])
    with pytest.raises(ParameterError, match=r"'MT-CO1'.*a step before this one has left it out"):
        fit(steps, named(), Execution(workers=1))
