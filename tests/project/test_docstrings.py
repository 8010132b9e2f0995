"""Everything public says what it takes, what it returns and how it is used, and its examples run."""

from __future__ import annotations

import doctest
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from fits import suited

import streamdr
from streamdr.core.docstrings import entries, sections
from streamdr.core.method import Supervised
from streamdr.estimators import ESTIMATORS
from streamdr.methods import METHODS

ROWS = np.random.default_rng(0).normal(size=(60, 8))
LABELS = np.arange(60) % 3
SOMETIMES = {"stream_", "feature_names_in_"}
"""What is there after `partial_fit` only, or where columns have names."""
FACES = {f"streamdr.estimators.{name}" for name in ("base", "chain", "classifiers", "registry", "selectors")}
WITHOUT_SECTIONS = {"__version__", "errors", "plots", "testing"}


def public() -> Iterator[tuple[str, Any]]:
    """The functions and classes of the package, and what the estimators add to scikit-learn's methods."""
    for name in streamdr.__all__:
        if name not in WITHOUT_SECTIONS:
            yield name, getattr(streamdr, name)
    for module in (streamdr.errors, streamdr.plots, streamdr.testing):
        listed = getattr(module, "__all__", None)
        for name in listed or vars(module):
            value = getattr(module, name)
            own = listed or getattr(value, "__module__", "") == module.__name__
            if own and not name.startswith("_") and (inspect.isfunction(value) or inspect.isclass(value)):
                yield f"{module.__name__}.{name}", value
    for name, estimator in {**ESTIMATORS, "chain": streamdr.Chain}.items():
        for base in estimator.__mro__:
            for method, value in vars(base).items() if base.__module__ in FACES else ():
                function = getattr(value, "fn", value)  # behind `available_if`
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}", function


PUBLIC = dict(public())


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_the_sections_that_it_needs(name):
    value = PUBLIC[name]
    said = sections(value.__doc__ or "")
    assert said[""], "a sentence that says what it is"
    assert ">>> " in said.get("Examples", ""), "an example that runs"
    try:
        signature = inspect.signature(value)
    except ValueError:  # an exception that takes a message has none
        signature = inspect.Signature()
    taken = {parameter.name for parameter in signature.parameters.values()} - {"self", "args", "kwargs", "_"}
    listed = {word.strip("* ") for entry in entries(said.get("Parameters", "")) for word in entry.split(",")}
    assert taken <= listed, "every parameter"
    if inspect.isfunction(value) and signature.return_annotation not in ("None", "Iterator[None]"):
        assert {"Returns", "Yields"} & said.keys(), "what it returns"


@pytest.mark.parametrize("name", METHODS)
def test_help_and_dir_have_the_same_fitted_attributes(name):
    for method in METHODS[name].examples():
        labels = LABELS if isinstance(method, Supervised) else None
        fitted = ESTIMATORS[name](**vars(method)).fit(suited(method, ROWS), labels)
        listed = {each for each in dir(fitted) if each.endswith("_") and not each.startswith("_")}
        described = entries(sections(type(fitted).__doc__ or "")["Attributes"])
        assert listed - described.keys() == set()
        assert described.keys() - listed - SOMETIMES == set()
        assert all(described.values())
        assert all(hasattr(fitted, each) for each in listed), "what is listed is there"


MODULES = [
    module.name
    for module in pkgutil.walk_packages(streamdr.__path__, "streamdr.")
    if not module.name.startswith("streamdr.flows") and not module.name.endswith("__main__")
]


def test_every_example_of_a_docstring_runs():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for name in MODULES:
        for test in finder.find(import_module(name)):
            runner.run(test)
    done = runner.summarize(verbose=False)
    assert done.attempted > 100
    assert done.failed == 0
