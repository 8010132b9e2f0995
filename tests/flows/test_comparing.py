"""The flow of a comparison: the table of the command, on the page of a run, and every output verified."""

from __future__ import annotations

import json

import pytest
from command_line import succeed
from narrowing import checked
from prefect.exceptions import ParameterTypeError

from streamdr.config.comparisons import ComparisonOutput
from streamdr.config.keys import keys_of
from streamdr.flows.compare import compare
from streamdr.flows.parameters import Comparison
from streamdr.methods import METHODS
from streamdr.workflow.reports import CompareReport

GOOD = {
    "input": {"path": "x.zarr"},
    "methods": [{"name": "pca", "n_components": 2}, {"name": "pca", "as": "white", "whiten": "pca"}],
    "output": {"folder": "out", "table": ["out/all.md"]},
}


@pytest.fixture
def compared(place):
    (place / "all.yaml").write_text(json.dumps(GOOD))
    return place


def test_the_table_is_the_commands_and_every_output_is_verified(reporting, compared):
    report = checked(CompareReport, compare(Comparison.load("all.yaml", ["methods.0.n_components=3"])))
    assert [row.n_outputs for row in report.rows] == [3, 5]
    table = (compared / "out" / "all.md").read_text()
    run = reporting.runs(name="compare")[0]
    assert run["state"]["type"] == "COMPLETED"
    assert reporting.stages(run["id"], expected=3) == ["compare", "verify", "verify"]
    artifacts = reporting.artifacts(run["id"])
    (first, second) = json.loads(artifacts["comparison"]["data"])
    assert (first["name"], second["name"]) == ("pca", "white")
    assert all(f"| {first[title]} |" in table for title in ("stress-1", "trustworthiness", "peak memory"))
    again = succeed("compare", "all.yaml", "--set", "methods.0.n_components=3", "--json", cwd=compared).report
    assert again["bytes_read"] == 0


def test_the_form_has_every_key_with_its_meaning():
    shown = compare.parameters.definitions["Comparison"]["properties"]
    *single, chain = shown["methods"]["items"]["anyOf"]
    assert "steps" in chain["properties"]
    methods = {each["properties"]["name"]["const"]: each for each in single}
    assert methods.keys() == METHODS.keys()
    assert all("as" in each["properties"] for each in methods.values())
    for key in keys_of(ComparisonOutput).values():
        assert shown["output"]["properties"][key.name]["description"] == key.description


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (GOOD | {"methods": [{"name": "pca", "n_componets": 2}]}, r"methods\.0\.n_componets: unknown key"),
        (GOOD | {"methods": []}, "methods: expected a list of methods"),
        (GOOD | {"output": {"folder": "out", "table": "a.txt"}}, r"output\.table: 'a\.txt' does not end"),
        (
            GOOD | {"output": {"folder": "s3://me:hush@bucket/x", "table": "a.md"}},
            r"output\.folder: holds a secret",
        ),
    ],
)
def test_a_bad_value_is_refused_by_its_name(bad, words):
    with pytest.raises(ParameterTypeError, match=words) as caught:
        compare.validate_parameters({"config": bad})
    assert "hush" not in str(caught.value)
