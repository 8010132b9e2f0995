"""The costs of a chain: those of its members, on the rows as the largest models before them leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np

from streamdr.core.blocks import MatrixSpec
from streamdr.core.mapping import columns_kept, mapped_spec
from streamdr.core.method import HasOutlines, Method, Model, Phase, Route
from streamdr.core.work import SELDOM, Count
from streamdr.errors import DataError, ParameterError
from streamdr.methods.chain.model import ChainModel, chain_model
from streamdr.methods.steps.base import WithoutPasses

T = TypeVar("T")


def with_name(name: str, call: Callable[[], T]) -> T:
    """Call a function of a member. An error of its parameters, or of what it learned, has its name."""
    try:
        return call()
    except ParameterError as error:
        if "." in error.parameter:
            raise
        raise type(error)(f"{name}.{error.parameter}", error.message) from error
    except DataError as error:
        if type(error) is not DataError or str(error).startswith(f"{name}: "):
            raise
        raise DataError(f"{name}: {error}") from error


def chain_routes(
    names: Sequence[str], steps: Sequence[Method], data: MatrixSpec
) -> Iterator[tuple[Route, ...]]:
    """Yield every combination of routes of the members."""
    found: list[Sequence[Route]] = []
    for number, (name, step) in enumerate(zip(names, steps, strict=True)):
        found.append(with_name(name, lambda step=step, data=data: step.routes(data)))  # type: ignore[misc]
        if number < len(steps) - 1:
            method = found[-1][0].method
            data = _foreseen(data, method, _largest(name, method, data))
    return product(*found)


def route_names(found: Sequence[Sequence[Route]]) -> list[str]:
    """Return a name for each combination of routes: that of the members with several, or of the last."""
    members = list(zip(*found, strict=True))
    differing = [each for each in members if len({route.name for route in each}) > 1] or members[-1:]
    return [", ".join(route.name for route in routes) for routes in zip(*differing, strict=True)]


def chain_route(chain: Method, name: str, routes: Sequence[Route], data: MatrixSpec) -> Route:
    """Return the route of a chain whose members take these routes."""
    names = tuple(getattr(chain, "names"))  # noqa: B009
    reading = [route for route in routes if route.passes]
    first, last = (reading[0], routes[-1]) if reading else (routes[-1], routes[-1])
    # A fallback can begin in any member, so its passes are among those that are possible, and not usual.
    passes = sum(route.passes for route in routes)
    usual = sum(route.usual_passes or route.passes for route in routes)
    continuing = passes - last.passes + last.continuing_passes if last.continuing_passes else 0
    return Route(
        method=chain,
        name=name,
        exact=all(route.exact for route in routes),
        passes=passes,
        flops=sum(route.flops for route in routes),
        phases=tuple(_phases(names, routes, data)),
        note=last.note,
        advice=next((route.advice for route in reversed(routes) if route.advice), ""),
        usual_passes=usual if usual < passes else 0,
        sampling_passes=first.sampling_passes,
        continuing_passes=continuing,
    )


def largest_models(
    names: Sequence[str], steps: Sequence[Method], data: MatrixSpec
) -> Iterator[tuple[Model, ...]]:
    """Yield outlines of the models of all members: the largest ones, with each outline of the first."""
    alternatives = _outlines(names[0], steps[0], data)
    rest: list[Model] = []
    data = _foreseen(data, steps[0], max(alternatives, key=lambda model: model.n_outputs))
    for name, step in zip(names[1:], steps[1:], strict=True):
        rest.append(_largest(name, step, data))
        data = _foreseen(data, step, rest[-1])
    for first in alternatives:
        yield first, *rest


def _phases(names: Sequence[str], routes: Sequence[Route], data: MatrixSpec) -> Iterator[Phase]:
    """Yield the phases of all members. The rows of a member go through outlines of those before it."""
    for number, route in enumerate(routes):
        if number == 0:
            yield from _counted(route)
        elif route.phases:
            before = [each.method for each in routes[:number]]
            for alternative, models in enumerate(largest_models(names[:number], before, data)):
                through = models[0] if number == 1 else chain_model(names[:number], models)
                held = 2 * _bytes_of(through)  # with the arrays that models derive from their own
                for phase in _counted(route):
                    # There will be one of the models.
                    count = SELDOM if alternative else phase.count
                    yield replace(phase, through=through, held_bytes=phase.held_bytes + held, count=count)


def _counted(route: Route) -> Iterator[Phase]:
    """Yield the phases of a member. Those of its fallback are passes that it seldom takes."""
    later = () if route.fallback is None else route.fallback.phases
    for phase in route.phases:
        falls_back = any(phase is other for other in later)
        yield replace(phase, count=Count(0, 0, phase.count.most)) if falls_back else phase


def _outlines(name: str, step: Method, data: MatrixSpec) -> Sequence[Model]:
    """Return the outlines of the models of a member that others follow."""
    found = step.outlines(data) if isinstance(step, HasOutlines) else ()
    if not found:
        raise ParameterError(
            "steps",
            f"no method can follow {name}: how many columns it makes is known only after it is fitted",
        )
    return found


def _largest(name: str, step: Method, data: MatrixSpec) -> Model:
    return max(_outlines(name, step, data), key=lambda model: model.n_outputs)


def _foreseen(data: MatrixSpec, step: Method, outline: Model) -> MatrixSpec:
    """Return the spec of rows as a member will leave them.

    Which columns a member keeps is known before its passes only if it has none. Otherwise the names are those
    of all columns that it may keep, more than it will.
    """
    spec = mapped_spec(data, outline)
    known = outline.outputs_are_features or isinstance(step, WithoutPasses)
    return spec if known or columns_kept(outline) is None else replace(spec, feature_names=data.feature_names)


def _bytes_of(model: Any) -> int:
    """Return the bytes of the arrays of a model, or of those of a chain."""
    if isinstance(model, ChainModel):
        return sum(map(_bytes_of, model.models))
    values = [getattr(model, each.name) for each in fields(model)] if is_dataclass(model) else []
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))
