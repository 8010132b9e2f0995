"""Columns of `obs` of AnnData are labels and conditions on rows, whatever their encoding."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import sparse_stores as stores
import zarr
from narrowing import present

from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.row_conditions import select_rows
from streamdr.errors import DataError, InputError, ParameterError

N = 60
NUMBERS = np.arange(N)
MISSING = NUMBERS % 4 == 0


@pytest.fixture(scope="module", params=stores.KINDS)
def path(request, tmp_path_factory):
    """A store with a column of every encoding that anndata writes."""
    with stores.plain_text():
        words = np.where(NUMBERS % 2, "odd", "even").astype(object)
        data = stores.annotated(
            stores.counts(),
            parity=words,
            passed=NUMBERS < 20,
            size=pd.Categorical(10 * (NUMBERS % 3)),
            depth=pd.Categorical(np.where(MISSING, np.nan, 0.5 * (NUMBERS % 3))),
            batch=pd.Categorical(known(words)),
            whole=pd.array(known(NUMBERS), dtype="Int64"),
            known=pd.array(known(NUMBERS < 30), dtype="boolean"),
        )
    return stores.written(data, tmp_path_factory.mktemp("columns"), request.param)


def known(values):
    """The values, or None where they are missing."""
    return [None if missing else value for value, missing in zip(values.tolist(), MISSING, strict=True)]


def rows_where(path, **where):
    """The numbers of the selected rows, by the names of the cells."""
    chosen = select_rows(open_source(path), where)
    names = chosen.sample_coords[0].values.read(Span(0, chosen.spec.n_rows), Span(0, 1))[:, 0]
    return [int(name.split()[1]) for name in names.tolist()]


def labels_of(source):
    return present(source.block(Span(0, N)).labels).tolist()


CONDITIONS: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "text": ({"parity": "odd"}, NUMBERS % 2 == 1),
    "categories": ({"cell_type": ["B", "T"]}, NUMBERS % 3 != 1),
    "flags": ({"passed": True}, NUMBERS < 20),
    "numbers as categories": ({"size": ">= 10"}, NUMBERS % 3 > 0),
    "missing numbers": ({"depth": "< 0.5"}, ~MISSING & (NUMBERS % 3 == 0)),
    "missing categories": ({"batch": "even"}, ~MISSING & (NUMBERS % 2 == 0)),
    "no order of what is missing": ({"batch": "< zero"}, ~MISSING),
    "not equal": ({"batch": "!= even"}, MISSING | (NUMBERS % 2 == 1)),
    "nullable": ({"whole": ">= 50"}, ~MISSING & (NUMBERS >= 50)),
    "nullable flags": ({"known": True}, ~MISSING & (NUMBERS < 30)),
    "names": ({"obs_names": ["cell 3", "cell 5"]}, np.isin(NUMBERS, [3, 5])),
    "a gene": ({"GENE3": "> 0"}, stores.counts().toarray()[:, 3] > 0),
    "several": ({"cell_type": "B", "passed": True}, (NUMBERS % 3 == 0) & (NUMBERS < 20)),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_a_condition_on_a_column_selects_rows(path, case):
    where, wanted = CONDITIONS[case]
    assert rows_where(path, **where) == np.flatnonzero(wanted).tolist()


def test_a_column_that_does_not_exist_is_an_error_with_others_that_do(path):
    with pytest.raises(ParameterError, match=r"'cell_typ'.*such as 'cell_type'"):
        select_rows(open_source(path), {"cell_typ": "B"})


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("cell_type", [("B", "NK", "T")[row % 3] for row in range(N)]),
        ("parity", ["odd" if row % 2 else "even" for row in range(N)]),
        ("size", [10.0 * (row % 3) for row in range(N)]),
        ("passed", [float(row < 20) for row in range(N)]),
    ],
)
def test_a_column_is_labels_by_its_name_and_by_its_path(path, column, wanted):
    by_name = open_source(path, label_column=column)
    assert labels_of(by_name) == wanted
    assert by_name.spec.n_cols == open_source(path).spec.n_cols  # the matrix keeps all of its columns
    assert labels_of(open_source(path, labels=f"{path}/obs/{column}")) == wanted


@pytest.mark.parametrize("column", ["batch", "depth", "whole"])
def test_a_row_without_a_label_is_an_error(path, column):
    with pytest.raises(DataError, match=f"obs/{column}: row 0 has .*label"):
        labels_of(open_source(path, label_column=column))


def test_columns_are_no_coordinates_and_no_features(path):
    source = open_source(path)
    assert [one.name for one in source.sample_coords] == ["obs_names"]
    assert "n_counts" in present(source.sample_columns).names()


def test_a_column_that_is_not_there_is_an_error(path):
    with pytest.raises(InputError, match=r"obs/none"):
        open_source(path, labels=f"{path}/obs/none")


@pytest.mark.parametrize("kind", ["zarr", "h5ad"])
def test_categories_of_older_anndata_are_read(tmp_path, kind):
    path = stores.written(stores.annotated(stores.counts()), tmp_path, "v2.zarr" if kind == "zarr" else kind)
    codes, categories = (NUMBERS % 2).astype("i1"), ["control", "treated"]
    if kind == "zarr":
        table = zarr.open_group(path / "obs", mode="r+")
        table.create_array("arm", data=codes, config={"write_empty_chunks": True})
        table.create_group("__categories").create_array("arm", data=np.array(categories, dtype="<U7"))
        table.attrs["column-order"] = ["arm"]
    else:
        with h5py.File(path, "r+") as file:
            file["obs/arm"] = codes
            file["obs/__categories/arm"] = categories
            file["obs"].attrs["column-order"] = ["arm"]
    assert labels_of(open_source(path, label_column="arm")) == [categories[row % 2] for row in range(N)]


def test_a_column_of_another_length_is_an_error(tmp_path):
    path = stores.written(stores.annotated(stores.counts()), tmp_path, "v3.zarr")
    zarr.open_array(path / "obs/n_counts", mode="r+").resize((N - 1,))
    with pytest.raises(DataError, match="obs/n_counts: has 59 values for the 60 rows"):
        select_rows(open_source(path), {"n_counts": "> 0"})


def test_chunks_that_anndata_did_not_write_are_read_only_on_request(tmp_path):
    """A chunk of the first category is all zeros, and anndata leaves it out."""
    with stores.plain_text():
        data = stores.annotated(stores.counts(), same=pd.Categorical(["one"] * N))
    path = stores.written(data, tmp_path, "v3.zarr")
    source = open_source(path, label_column="same")
    with pytest.raises(DataError, match=r"obs/same/codes: chunk c/0 is missing.*allow_missing_chunks"):
        source.validate()
    assert set(labels_of(open_source(path, label_column="same", allow_missing_chunks=True))) == {"one"}
