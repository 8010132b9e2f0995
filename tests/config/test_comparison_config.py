"""The configuration of a comparison: several methods where a run has one, with the same errors."""

from __future__ import annotations

import json

import jsonschema
import pytest
from narrowing import checked

from streamdr.config import (
    comparison_schema,
    load,
    load_all,
    load_comparison,
    parse_comparison,
    read_comparison,
)
from streamdr.core.addresses import RedactedAddress
from streamdr.errors import ConfigError, ParameterError
from streamdr.methods import METHODS
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA

GOOD = """\
input:
  path: data/x.zarr
methods:
  - {name: pca, n_components: 3}
  - {name: pca, as: white, whiten: pca}
  - name: ppca
    n_components: 2
output:
  folder: out/all
  table: out/all.md
  dtype: float32
execution:
  workers: 2
"""


def refused(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_comparison(text, overrides, name="c.yaml")
    return str(caught.value).splitlines()


def test_a_comparison_is_a_run_for_each_method():
    comparison = parse_comparison(GOOD)
    assert [entry.name for entry in comparison.methods] == ["pca", "white", "ppca"]
    assert comparison.output.tables == ["out/all.md"]
    first, second, third = comparison.runs()
    assert isinstance(first.method, PCA)
    assert first.method.n_components == 3
    assert checked(PCA, second.method).whiten == "pca"
    assert isinstance(third.method, PPCA)
    assert (second.output.model, second.output.embedding) == (
        "out/all/white.zarr",
        "out/all/white-embedding.zarr",
    )
    for run in (first, second, third):
        assert run.input.path == "data/x.zarr"
        assert run.output.dtype == "float32"
        assert run.execution.workers == 2


def test_plain_data_and_a_list_of_tables_will_do():
    sections = {
        "input": {"path": "x.zarr"},
        "methods": [{"name": "pca"}],
        "output": {"folder": "out/", "table": ["a.md", "b.csv"]},
    }
    comparison = read_comparison(sections)
    assert comparison.output.tables == ["a.md", "b.csv"]
    assert comparison.runs()[0].output.model == "out/pca.zarr"


def test_a_folder_may_be_an_address_whose_keys_are_not_shown():
    text = GOOD.replace("folder: out/all", "folder: 's3://me:hush@bucket/all?region=x'")
    (run, *_) = parse_comparison(text).runs()
    assert run.output.model == "s3://bucket/all/pca.zarr"
    assert "hush" not in repr(run)
    assert checked(RedactedAddress, run.output.model).given == "s3://me:hush@bucket/all/pca.zarr?region=x"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "n_components: 3",
            "n_components: x",
            "c.yaml:4:31: methods.0.n_components: expected a whole number",
        ),
        (
            "n_components: 3",
            "n_component: 3",
            "c.yaml:4:17: methods.0.n_component: unknown key; did you mean",
        ),
        ("n_components: 3", "folder: x", "methods.0.folder: unknown key; it belongs in the section output"),
        ("name: ppca", "name: pppca", "c.yaml:6:11: methods.2.name: 'pppca' is not one of"),
        ("    n_components: 2", "    n_components: 0", "c.yaml:7:19: methods.2.n_components: 0 is"),
        ("as: white", "as: pca", "c.yaml:5:21: methods.1.as: 'pca' is taken by the files of 'pca'"),
        ("as: white", "as: pca-embedding", "methods.1.as: 'pca-embedding' is taken by the files of 'pca'"),
        (", as: white", "", "c.yaml:5:5: methods.1.as: 'pca' is taken by the files of 'pca'"),
        ("as: white", "as: ../white", "methods.1.as: '../white' cannot be a file name"),
        ("as: white", "as: 3", "methods.1.as: 3 cannot be a file name"),
        ("name: ppca\n    n_components: 2", "pca", "c.yaml:6:5: methods.2: expected a section of keys"),
        ("name: ppca\n    n_components: 2", "name: lda", "input.labels: lda learns from labels"),
        (
            "table: out/all.md",
            "table: out/all.txt",
            "output.table: 'out/all.txt' does not end in .md or .csv",
        ),
        ("table: out/all.md", "table: [a.md, b.txt]", "output.table: 'b.txt' does not end in .md or .csv"),
        ("table: out/all.md", "table: []", "c.yaml:10:10: output.table: expected text"),
        ("  table: out/all.md\n", "", "output.table: required key is missing"),
        ("folder: out/all", "model: out/all", "output.model: unknown key; expected folder, table"),
        ("methods:", "method:", "c.yaml:3:1: method: `streamdr run` runs one method"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_its_key(old, new, expected):
    assert old in GOOD
    assert any(expected in line for line in refused(GOOD.replace(old, new, 1))), refused(
        GOOD.replace(old, new, 1)
    )


@pytest.mark.parametrize("methods", ["", " {name: pca}", " []", " pca"])
def test_methods_are_a_list(methods):
    head, _, tail = GOOD.partition("methods:\n")
    text = f"{head}methods:{methods}\noutput:{tail.partition('output:')[2]}"
    assert any("methods: expected a list of methods" in line for line in refused(text))


def test_all_mistakes_are_reported_at_once():
    text = GOOD.replace("n_components: 3", "n_components: x").replace("as: white", "as: ../white")
    lines = refused(text.replace("workers: 2", "workers: none"))
    assert [line.split(": ")[1] for line in lines] == [
        "methods.0.n_components",
        "methods.1.as",
        "execution.workers",
    ]


def test_an_entry_of_the_list_can_be_overridden_by_its_number():
    overridden = parse_comparison(GOOD, ["methods.0.n_components=5", "methods.1={name: ppca, as: p}"])
    assert checked(PCA, overridden.methods[0].method).n_components == 5
    assert overridden.methods[1].name == "p"
    (line,) = refused(GOOD, "methods.0.n_components=x")
    assert line.startswith("--set methods.0.n_components: methods.0.n_components: expected")
    for number in ("3", "-1", "pca"):
        (line,) = refused(GOOD, f"methods.{number}.whiten=pca")
        assert line.endswith(f"methods.{number}: a list of 3 has the keys 0 to 2")


def test_an_error_that_shows_with_the_data_has_the_line_of_its_entry():
    runs = parse_comparison(GOOD, name="c.yaml").runs()
    expected = str(runs[2].problem(ParameterError("n_components", "2 is too many")))
    assert expected == "c.yaml:7:19: methods.2.n_components: 2 is too many"
    assert str(runs[0].problem(ParameterError("path", "?"))) == "c.yaml:2:9: input.path: ?"


def test_a_comparison_is_no_run_but_several_can_be_reprocessed(tmp_path):
    file = tmp_path / "gallery.yaml"
    file.write_text(GOOD)
    with pytest.raises(ConfigError, match=r"gallery\.yaml:3:1: methods: .*`streamdr compare`"):
        load(file)
    assert load_comparison(file).source_file == str(file)
    (tmp_path / "alone.yaml").write_text("input: {path: x}\nmethod: {name: pca}\noutput: {model: m.zarr}\n")
    runs = load_all([str(tmp_path)])
    assert [run.output.model for run in runs] == [
        "m.zarr",
        "out/all/pca.zarr",
        "out/all/white.zarr",
        "out/all/ppca.zarr",
    ]
    assert {run.source_file for run in runs[1:]} == {str(file)}


def test_the_schema_accepts_what_is_read_and_refuses_what_is_not():
    schema = comparison_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    named = [form["title"] for form in schema["properties"]["methods"]["items"]["oneOf"]]
    assert named == [*METHODS, "chain"]
    good = {
        "input": {"path": "x.zarr"},
        "methods": [{"name": "pca", "as": "a"}, {"name": "ppca"}],
        "output": {"folder": "out", "table": ["a.md"]},
    }
    jsonschema.validate(good, schema)
    for section, value in (("methods", []), ("methods", [{"as": "a"}]), ("output", {"folder": "out"})):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(json.dumps({**good, section: value})), schema)
