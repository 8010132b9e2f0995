"""Lists of methods in configurations: what they mean, and where their problems are."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, cast

import jsonschema
import pytest
from narrowing import checked

from streamdr.config import RowSelection, comparison_schema, parse, parse_comparison, schema
from streamdr.errors import ConfigError, ParameterError
from streamdr.methods.chain import Chain
from streamdr.methods.pca import PCA

CHAIN = """
input: {path: cells.zarr, labels: y.zarr}
method:
  - {name: select_rows, where: {n_counts: ">= 200", kind: [T, B]}, mask: good.zarr}
  - {name: normalize_total, target_sum: 1.0e4}
  - {name: log1p, as: log}
  - {name: pca, n_components: 50}
output: {model: m.zarr, steps: {log: log.zarr, pca: p.zarr}}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, name="c.yaml")
    return [line.removeprefix("c.yaml:") for line in str(caught.value).splitlines()]


def of_method(method: str, output: str = "output: {model: m.zarr}") -> str:
    return f"input: {{path: x.zarr}}\n{output}\nmethod:\n{method}"


def test_a_list_is_a_chain_of_its_methods_in_order():
    run = parse(CHAIN)
    chain = checked(Chain, run.method)
    assert chain.names == ("normalize_total", "log", "pca")
    assert asdict(cast(Any, chain.steps[2])) == asdict(PCA(50))
    assert run.row_selection == RowSelection({"n_counts": ">= 200", "kind": ["T", "B"]}, "good.zarr")
    assert run.output.rows == {"steps.log": "log.zarr", "steps.pca": "p.zarr"}


def test_a_list_of_one_method_is_a_chain_of_it():
    chain = checked(Chain, parse(of_method("  - {name: pca, n_components: 2}")).method)
    assert chain.names == ("pca",)


def test_methods_that_are_repeated_are_numbered():
    chain = checked(Chain, parse(of_method("  - {name: pca}\n  - {name: log1p}\n  - {name: pca}")).method)
    assert chain.names == ("pca_1", "log1p", "pca_2")


def test_a_record_of_a_chain_is_json_and_reads_back_as_that_chain():
    record = json.dumps(parse(CHAIN).to_dict())
    assert parse(record).to_dict() == parse(CHAIN).to_dict()
    assert json.loads(record)["method"][0]["name"] == "select_rows"


def test_a_key_of_a_step_is_set_from_the_command_line():
    chain = checked(Chain, parse(CHAIN, ["method.3.n_components=7"]).method)
    assert checked(PCA, chain.steps[2]).n_components == 7


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (
            "  - {name: log1p}\n  - {name: pca, n_component: 3}",
            ["5:17: method.1.n_component: unknown key; did you mean 'n_components'?"],
        ),
        (
            "  - {name: lgo1p}\n  - {name: pca, n_components: many}",
            [
                "4:12: method.0.name: 'lgo1p' is not one of",
                "5:31: method.1.n_components: ",
            ],
        ),
        ("  - {name: log1p}\n  - {name: clip, max: 3}", ["5:5: method.1: clip prepares rows for the method"]),
        ("  - {name: pca}\n  - {name: lda, as: pca}", ["5:21: method.1.as: 'pca' is the name of an earlier"]),
        ("  - {name: clip, as: a b}\n  - {name: pca}", ["4:22: method.0.as: 'a b' cannot be a name"]),
        ("  - {name: clip, min: 2, max: 1}\n  - {name: pca}", ["4:23: method.0.min: 2 is above max"]),
        (
            "  - {name: pca}\n  - {name: select_rows, where: {a: 1}}\n  - {name: pca}",
            ["5:12: method.1.name: select_rows can only be the first"],
        ),
        ("  - {name: select_rows, where: {a: 1}}", ["4:3: method: expected a list of methods"]),
        ("  - {name: select_rows}\n  - {name: pca}", ["4:5: method.0.where: no condition is given"]),
        (
            "  - {name: select_rows, where: {a: {b: 1}}}\n  - {name: pca}",
            ["4:32: method.0.where: a: expected a value"],
        ),
        (
            "  {name: select_rows, where: {a: 1}}",
            ["4:10: method.name: select_rows can only be the first of a"],
        ),
        ("  []", ["4:3: method: expected a list of methods, each with a name"]),
        ("  - pca", ["4:5: method.0: expected a section of keys, not 'pca'"]),
        ("  - {as: x}\n  - {name: pca}", ["method.0.name: required key is missing; choose select_rows, pca"]),
    ],
)
def test_every_problem_of_a_list_is_reported_at_its_place(method, expected):
    found = problems(of_method(method))
    assert len(found) == len(expected)
    assert all(start in line for start, line in zip(expected, found, strict=True)), found


@pytest.mark.parametrize(
    ("output", "method", "expected"),
    [
        ("steps: {lgo1p: a}", "  - {name: log1p}\n  - {name: pca}", "did you mean 'log1p'?"),
        ("steps: {pca: a}", "  {name: pca}", "pca is one method, not a list of steps"),
        (
            "embedding: a, steps: {log1p: a}",
            "  - {name: log1p}\n  - {name: pca}",
            "is where the embedding goes",
        ),
        ("imputed: a", "  - {name: log1p}\n  - {name: pca}", "pca does not impute"),
        ("denoised: a", "  - {name: normalize_total}\n  - {name: pca}", "the steps cannot be undone"),
        ("imputed_variance: a", "  - {name: log1p}\n  - {name: ppca}", "variances cannot be mapped back"),
    ],
)
def test_outputs_that_a_chain_does_not_have_are_refused(output, method, expected):
    (found,) = problems(of_method(method, f"output: {{model: m.zarr, {output}}}"))
    assert expected in found
    assert found.startswith("2:")


def test_a_chain_with_a_method_that_learns_from_labels_needs_them():
    (found,) = problems(of_method("  - {name: pca}\n  - {name: lda}"))
    assert "input.labels: lda learns from labels" in found


def test_errors_that_depend_on_the_data_are_placed_in_their_step():
    run = parse(CHAIN)
    for parameter, place in (
        ("pca.n_components", "method.3.n_components"),
        ("log.labels", "input.labels"),
        ("where", "method.0.where"),
        ("row_mask", "method.0.mask"),
        ("steps", "method"),
        ("steps.log", "output.steps.log"),
        ("array", "input.array"),
    ):
        problem = run.problem(ParameterError(parameter, "is wrong"))
        assert ".".join(problem.path) == place
        assert problem.place.line > 0


def test_the_schema_accepts_what_is_read_and_refuses_what_is_not():
    document = parse(CHAIN).document.data
    jsonschema.validate(document, schema())
    document["method"][3]["n_component"] = 3
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema())


def test_an_entry_of_a_comparison_may_be_a_chain():
    text = """
input: {path: x.zarr}
methods:
  - {name: pca}
  - {as: logged, steps: [{name: log1p}, {name: pca, n_components: 2}]}
output: {folder: out, table: out/table.md}
"""
    comparison = parse_comparison(text)
    jsonschema.validate(comparison.document.data, comparison_schema())
    assert [entry.name for entry in comparison.methods] == ["pca", "logged"]
    run = comparison.runs()[1]
    assert checked(Chain, run.method).names == ("log1p", "pca")
    path = run.problem(ParameterError("pca.n_components", "is wrong")).path
    assert ".".join(path) == "methods.1.steps.1.n_components"
    with pytest.raises(ConfigError, match=r"methods.1.steps.0.name: all methods of a comparison see"):
        parse_comparison(text.replace("{name: log1p}", "{name: select_rows, where: {a: 1}}"))
