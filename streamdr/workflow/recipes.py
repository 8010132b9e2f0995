"""Recipes of outputs: what a run computes and from what, as plain values, and how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from streamdr import store
from streamdr.config import RowSelection
from streamdr.core.addresses import parse_location
from streamdr.core.method import Method
from streamdr.methods.chain import Chain, parameters_of

WEIGHTS = "feature_weights"
SELECTION = RowSelection.name
_NAMES = ("name", "as")


def recorded_parameters(method: Method) -> dict[str, Any]:
    """Return the parameters of a method, without later additions that have their neutral value."""
    values: dict[str, Any] = store.to_json(parameters_of(method))
    if isinstance(method, Chain):
        steps = zip(values["steps"], method.steps, strict=True)
        return {"steps": [_without_neutral(given, added_parameters(step)) for given, step in steps]}
    return _without_neutral(values, added_parameters(method))


def _without_neutral(values: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in added or value != added[key]}


def added_parameters(method: Method) -> Mapping[str, Any]:
    """Return the parameters that earlier versions did not have, with the values that give their behaviour."""
    added: Mapping[str, Any] = getattr(method, "added_parameters", {})
    return added


def recorded_selection(selection: RowSelection | None) -> dict[str, Any]:
    """Return which rows are selected. If all are, there is no key, as in earlier versions."""
    if selection is None:
        return {}
    mask = None if selection.mask is None else str(parse_location(selection.mask))
    given: dict[str, Any] = store.to_json({**asdict(selection), "mask": mask})
    return {SELECTION: given}


def steps_of(recipe: Any) -> Sequence[Mapping[str, Any]]:
    """Return the steps of the chain that a recipe records; none for another method."""
    parameters = recipe.get("parameters") if isinstance(recipe, Mapping) else None
    steps = parameters.get("steps") if isinstance(parameters, Mapping) else None
    if recipe is None or recipe.get("method") != Chain.name or not isinstance(steps, list):
        return ()
    valid = all(isinstance(each, Mapping) and all(name in each for name in _NAMES) for each in steps)
    return cast(Sequence[Mapping[str, Any]], steps) if valid else ()


def changes(old: Any, new: Mapping[str, Any], method: Method) -> str:
    """Return, in words, the first difference between the recipe of an output and the configured one."""
    if not isinstance(old, Mapping):
        return "the existing one was not made by a run"
    if old.get("method") != new["method"]:
        return f"the method was {_method_name(old)} and is {_method_name(new)}"
    if selection := _group_change(old.get(SELECTION) or {}, new.get(SELECTION) or {}, f"{SELECTION}."):
        return selection
    if isinstance(method, Chain):
        found = next(filter(None, step_changes(old, new, method)), "") or _order_change(old, new)
    else:
        found = _group_change(old.get("parameters"), new["parameters"], "", added_parameters(method))
    return found or _group_change(old.get("input"), new["input"], "input.") or "its recipe differs"


def step_changes(old: Any, new: Mapping[str, Any], method: Chain) -> list[str]:
    """Return, for each step of a chain, how it differs from the recorded step of its name; "" if not."""
    before = {step["as"]: step for step in steps_of(old)}
    found = []
    for now, step in zip(new["parameters"]["steps"], method.steps, strict=True):
        name, was = now["as"], before.get(now["as"])
        if was is None:
            found.append(f"{name} was added")
        elif was["name"] != now["name"]:
            found.append(f"{name} was {was['name']} and is {now['name']}")
        else:
            found.append(_group_change(was, now, f"{name}.", added_parameters(step)))
    return found


def _order_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return, in words, that steps were removed or moved; "" if they were not."""
    was, now = ([str(step["as"]) for step in steps_of(recipe)] for recipe in (old, new))
    if removed := [name for name in was if name not in now]:
        return f"{', '.join(removed)} {'was' if len(removed) == 1 else 'were'} removed"
    return "" if was == now else f"the steps were {_arrows(was)} and are {_arrows(now)}"


def _method_name(recipe: Mapping[str, Any]) -> Any:
    """Return the name of a method; of a chain, those of its steps."""
    return _arrows([str(step["as"]) for step in steps_of(recipe)]) or recipe.get("method")


def _arrows(names: Sequence[str]) -> str:
    return " -> ".join(names)


def _group_change(was: Any, now: Mapping[str, Any], what: str, added: Mapping[str, Any] | None = None) -> str:
    """Return, in words, the first difference between two groups of a recipe; "" if there is none."""
    if not isinstance(was, Mapping):
        return "its recipe differs"
    neutral = added or {}
    for key in [*now, *was]:
        before, after = (given.get(key, neutral.get(key)) for given in (was, now))
        if before != after and key == WEIGHTS:  # digests
            return _weights_change(before, after)
        if before != after:
            return f"{what}{key} was {before} and is {after}"
    return ""


def _weights_change(before: Any, after: Any) -> str:
    """Return, in words, how the weights of features have changed, of which a digest is recorded."""
    if before is None:
        return f"input.{WEIGHTS} are given, and were not"
    return f"input.{WEIGHTS} were given, and are not" if after is None else f"input.{WEIGHTS} have changed"
