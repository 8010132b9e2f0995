"""The parameters of a flow are a configuration: Prefect shows its keys as a form, and refuses bad values."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import uuid
from typing import Any, cast

import jsonschema
import pytest
import yaml
from narrowing import checked
from prefect import Flow
from prefect.deployments.runner import RunnerDeployment
from prefect.deployments.steps import run_shell_script
from prefect.exceptions import ParameterTypeError
from secret_addresses import ADDRESSES, SECRET

from streamdr.config import load
from streamdr.config.keys import keys_of
from streamdr.config.row_selection import RowSelection
from streamdr.config.sections import ExecutionSection, Input, Output
from streamdr.flows.append_day import append_day
from streamdr.flows.fit_transform import fit_transform
from streamdr.flows.parameters import _WITHOUT_SECRETS, Configuration
from streamdr.flows.reprocess import reprocess
from streamdr.flows.stages import StageRunner
from streamdr.methods import METHODS

GOOD = {
    "input": {"path": "x.zarr"},
    "method": {"name": "pca", "n_components": 2},
    "output": {"model": "model.zarr"},
}


def without(document, *path):
    *sections, key = path
    copy = {name: dict(keys) for name, keys in document.items()}
    del (copy[sections[0]] if sections else copy)[key]
    return copy


@pytest.mark.parametrize("flow", [fit_transform, reprocess], ids=lambda flow: flow.name)
def test_the_form_has_every_key_with_its_meaning(flow):
    shown = flow.parameters.definitions["Configuration"]["properties"]
    sections = {"input": Input, "output": Output, "execution": ExecutionSection}
    forms = [(shown[name], section) for name, section in sections.items()]
    *single, chain = shown["method"]["anyOf"]
    entries = {form["properties"]["name"]["const"]: form for form in chain["items"]["anyOf"]}
    methods = {form["properties"]["name"]["const"]: form for form in single}
    assert methods.keys() == METHODS.keys()
    assert entries.keys() == {*METHODS, RowSelection.name}
    forms += [(each[name], METHODS[name]) for name in METHODS for each in (methods, entries)]
    for form, section in [*forms, (entries[RowSelection.name], RowSelection)]:
        for key in keys_of(section).values():
            assert form["properties"][key.name]["description"] == key.description


def test_the_parameters_explain_themselves():
    shown = fit_transform.parameters.properties
    assert set(shown) == {"config", "storage_block", "fresh"}
    assert fit_transform.parameters.required == ["config"]


def test_a_configuration_that_is_right_is_taken_as_it_is():
    taken = fit_transform.validate_parameters({"config": GOOD})["config"]
    assert isinstance(taken, Configuration)
    assert taken.root == GOOD


def test_a_list_of_methods_is_taken_as_it_is():
    steps = [{"name": "select_rows", "where": {"a": 1}}, {"name": "log1p", "as": "log"}, GOOD["method"]]
    output = {"model": "m.zarr", "steps": {"log": "log.zarr"}}
    given = {"input": {"path": "x.zarr"}, "method": steps, "output": output}
    taken = fit_transform.validate_parameters({"config": given})["config"]
    assert taken.root == given
    runner = StageRunner(cast(Any, None), [taken.root], fresh=False, storage={})
    assert runner.has_rows
    assert not runner.without_rows().has_rows
    jsonschema.validate(given, fit_transform.parameters.definitions["Configuration"])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (GOOD | {"method": {"name": "pca", "n_components": "many"}}, "method.n_components"),
        (
            GOOD | {"method": {"name": "pca", "n_componets": 2}},
            "method.n_componets: unknown key; did you mean",
        ),
        (GOOD | {"method": [{"name": "pac"}]}, "method.0.name: 'pac' is not one of 'select_rows', 'pca'"),
        (GOOD | {"method": {"name": "pac"}}, "method.name: 'pac' is not one of 'pca'"),
        (GOOD | {"execution": {"memory_limit": "lots"}}, "execution.memory_limit"),
        (without(GOOD, "output", "model"), "output.model: required key is missing"),
        (without(GOOD, "input"), "input.path: required key is missing"),
    ],
)
def test_a_bad_value_is_refused_by_its_name(bad, words):
    with pytest.raises(ParameterTypeError, match=words):
        fit_transform.validate_parameters({"config": bad})


@pytest.mark.parametrize("path", ["s3://me:hush@bucket/x.zarr", "s3://bucket/x.zarr?token=hush"])
def test_a_secret_is_refused_and_not_repeated(path):
    with pytest.raises(ParameterTypeError, match=r"input\.path: holds a secret") as caught:
        fit_transform.validate_parameters({"config": GOOD | {"input": {"path": path}}})
    assert "hush" not in str(caught.value)


def test_the_deployments_have_parameters_that_their_flows_take():
    from prefect_server import FLOWS

    deployments = yaml.safe_load((FLOWS.parent / "prefect.yaml").read_text())["deployments"]
    taken: dict[str, Flow[..., Any]] = {
        "nightly": fit_transform,
        "reprocess": reprocess,
        "append-day": append_day,
    }
    assert {each["name"] for each in deployments} == set(taken)
    for each in deployments:
        taken[each["name"]].validate_parameters(each["parameters"])
        assert each["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    shown = load(FLOWS.parent / "configs" / "quickstart.yaml")
    nightly = load(FLOWS.parent / "configs" / "climate_nightly.yaml")
    assert deployments[2]["parameters"]["config"] == nightly.document.data
    assert Configuration(deployments[0]["parameters"]["config"]).root["output"]["model"] == shown.output.model


@pytest.mark.parametrize("home", [None, "", "elsewhere", "here"])
def test_a_worker_that_does_not_know_its_home_says_so(home, monkeypatch):
    from prefect_server import FLOWS

    steps = yaml.safe_load((FLOWS.parent / "prefect.yaml").read_text())["pull"]
    assert [list(step) for step in steps] == [
        ["prefect.deployments.steps.run_shell_script"],
        ["prefect.deployments.steps.set_working_directory"],
    ]
    monkeypatch.delenv("STREAMDR_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("STREAMDR_HOME", str(FLOWS.parent) if home == "here" else home)
    looking = run_shell_script(**steps[0]["prefect.deployments.steps.run_shell_script"])
    if home == "here":
        asyncio.run(looking)
        return
    with pytest.raises(RuntimeError) as caught:
        asyncio.run(looking)
    assert f'STREAMDR_HOME is "{home or ""}"' in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "data/x.zarr",
        "s3://bucket/a@b.zarr",
        "abfs://container@account/x",
        "https://host:80/a@b",
        "what? #1 a:b@c",
    ],
)
def test_the_schema_takes_what_has_no_keys(text):
    assert re.search(_WITHOUT_SECRETS, text)
    assert fit_transform.validate_parameters({"config": GOOD | {"input": {"path": text}}})


@pytest.mark.parametrize("text", [text for kind, text in ADDRESSES.items()])
def test_the_schema_refuses_what_has_keys(text):
    assert not re.search(_WITHOUT_SECRETS, text)


def test_the_server_stores_nothing_secret(reporting):
    deployment = checked(RunnerDeployment, fit_transform.to_deployment(f"secrets-{uuid.uuid4().hex}")).apply()
    cluster = {"name": "LocalCluster", "arguments": {"env": {"TOKEN": SECRET}}}
    sections = [GOOD | {"input": {"path": text}} for text in ADDRESSES.values()]
    sections.append(GOOD | {"execution": {"cluster": cluster}})
    sections.append(
        GOOD | {"execution": {"cluster": {"name": "LocalCluster", "arguments": {"host": f"a {SECRET}"}}}}
    )
    for config in sections:
        with pytest.raises(urllib.error.HTTPError) as refused:
            reporting.ask(f"/deployments/{deployment}/create_flow_run", parameters={"config": config})
        assert refused.value.code in (409, 422)
    assert reporting.ask(f"/deployments/{deployment}/create_flow_run", parameters={"config": GOOD})["id"]
    for file in reporting.home.rglob("prefect.db*"):
        assert SECRET.encode() not in file.read_bytes()
