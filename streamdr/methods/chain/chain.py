"""The chain: a method that runs methods one after another, each on the rows as those before it leave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import MatrixSpec
from streamdr.core.function_digest import UnidentifiedError
from streamdr.core.mapping import class_fills_missing, mapped_spec, mapping_digest
from streamdr.core.method import (
    ConditionalOutputs,
    HasOutlines,
    Method,
    Model,
    Pass,
    Passes,
    Route,
    Supervised,
    Tags,
)
from streamdr.errors import MissingValuesError, ParameterError
from streamdr.methods.chain.model import ChainModel, chain_model, chain_model_class
from streamdr.methods.chain.routes import chain_route, chain_routes, largest_models, route_names, with_name


@dataclass
class Chain:
    """Methods one after another. What it can do follows from its members.

    Parameters
    ----------
    steps : tuple of methods
        The methods, in order.
    names : tuple of str
        The name of each; by default that of the method, with a number where it is repeated.
    """

    name: ClassVar[str] = "chain"
    model: ClassVar[type] = ChainModel
    tags: ClassVar[Tags] = Tags()
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    steps: tuple[Method, ...]
    names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        self.names = self.names or member_names(self.steps, [None] * len(self.steps))
        own = vars(self)  # in the instance, since they depend on the members
        seeing = self.seeing
        own["tags"] = Tags(
            incremental=False,
            sample_weight=all(step.tags.sample_weight for step in self.steps),
            inexact_on=tuple(sorted({kind for step in self.steps for kind in step.tags.inexact_on})),
            feature_subset=all(step.tags.feature_subset for step in seeing),
            weighs_features=seeing[-1].tags.weighs_features,
            step=self.steps[-1].tags.step,
            nonnegative=any(step.tags.nonnegative for step in self.steps),
        )
        own["model"] = chain_model_class(tuple(step.model for step in self.steps))
        targets = [step.target for step in self.steps if isinstance(step, Supervised)]
        if targets:
            own["target"] = next((target for target in targets if target != "any"), "any")

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        from streamdr.methods.lda import LDA
        from streamdr.methods.pca import PCA

        return [cls((PCA(4), PCA(2))), cls((PCA(3, solver="krylov"), LDA()))]

    @property
    def seeing(self) -> tuple[Method, ...]:
        """The members that see the features of the data: the first ones, up to one that is not a step."""
        number = next((number for number, step in enumerate(self.steps) if not step.tags.step), None)
        return self.steps if number is None else self.steps[: number + 1]

    @property
    def allows_nan(self) -> bool:
        """Whether every member takes missing values, up to the first that leaves none."""
        for step in self.steps:
            kind = cast(Any, step.model)
            if not kind.allow_nan:
                return False
            if class_fills_missing(kind):
                return True
        return True

    def check(self) -> None:
        """Refuse impossible parameter values of a member, and a chain that ends in a step."""
        for step, name in zip(self.steps, self.names, strict=True):
            with_name(name, step.check)
        require_end(self.names[-1], self.steps[-1])

    def lacks(self, what: str) -> str | None:
        """Why the last member's models lack an operation; None where they have it."""
        last = self.steps[-1]
        return last.lacks(what) if isinstance(last, ConditionalOutputs) else None

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """Every combination of routes of the members."""
        self.check()
        found = list(chain_routes(self.names, self.steps, data))
        names = route_names(found)
        return [
            chain_route(replace(self, steps=tuple(route.method for route in routes)), name, routes, data)
            for name, routes in zip(names, found, strict=True)
        ]

    def using(self, route: str) -> Self:
        """The chain itself: its routes are those of its members."""
        return self

    def up_to(self, name: str) -> Chain:
        """The chain of the first methods up to one of them, which may be a step."""
        number = self.names.index(name) + 1
        return Chain(self.steps[:number], self.names[:number])

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """Chains of the largest models; none if a member does not know the size of its models."""
        if not all(isinstance(step, HasOutlines) for step in self.steps):
            return []
        return [chain_model(self.names, models) for models in largest_models(self.names, self.steps, data)]

    def passes(self, data: MatrixSpec, start: Model | None = None) -> Passes:
        """The passes of all members, each through the models before it. Only the last one may start warm."""
        models: list[Model] = []
        for number in range(len(self.steps)):
            models.append((yield from self.passes_of(number, data, models, start)))
        return chain_model(self.names, models)

    def passes_of(
        self, number: int, data: MatrixSpec, models: Sequence[Model], start: Model | None = None
    ) -> Passes:
        """The passes of one member, given the models of those before it. It returns the model of its own."""
        for model in models:
            data = mapped_spec(data, model)
        if models:  # the plan was made for the most columns that the members before may keep
            with_name(self.names[number], partial(self.steps[number].routes, data))
        last = number == len(self.steps) - 1
        begin = _start_of_last(start, self.names, models) if last else None
        passes = self.steps[number].passes(data, begin)
        return (yield from _through(self.names[: number + 1], passes, models))

    def member_routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The routes of the members, if this is the method of a route, so that each has one."""
        return next(chain_routes(self.names, self.steps, data))


def _joined(names: Sequence[str], models: Sequence[Model]) -> Model | None:
    """Return the model of all models so far; None if there is none."""
    if len(models) < 2:
        return models[0] if models else None
    return chain_model(names[: len(models)], models)


def _through(
    names: Sequence[str], passes: Passes, models: Sequence[Model]
) -> Generator[Pass, Accumulator, Model]:
    """Run the passes of a member on the rows as the models before it leave them, and return its model.

    `names` are those of the models, and of the member. An error has the name of the member.
    """
    *steps, name = names
    before = _joined(names, models)
    try:
        request = with_name(name, partial(next, passes))
        while True:
            mapped = before is not None and request.in_memory is None
            try:
                full = yield replace(request, through=before, steps=tuple(steps)) if mapped else request
            except MissingValuesError as missing:
                refusing = [step for step, model in zip(steps, models, strict=True) if not model.allow_nan]
                request = _continued(passes, missing, next(iter(refusing), name))
            else:
                request = with_name(name, partial(passes.send, full))
    except StopIteration as finished:
        model: Model = finished.value
        return model


def _continued(passes: Passes, missing: MissingValuesError, refusing: str) -> Pass:
    """Return the next pass of a member that continues without missing values, or say which one does not."""
    try:
        return passes.throw(missing)
    except MissingValuesError as error:
        raise MissingValuesError(f"{error} ({refusing} takes none)") from None


def _start_of_last(start: Model | None, names: Sequence[str], models: Sequence[Model]) -> Model | None:
    """Return the last model of an earlier fit, if the models before it still map rows alike."""
    if not isinstance(start, ChainModel) or len(start.models) != len(models) + 1 or start.names != names:
        return None
    try:
        before = zip(start.models, models, strict=False)
        same = all(mapping_digest(old) == mapping_digest(new) for old, new in before)
    except UnidentifiedError:
        return None
    return start.models[-1] if same else None


def chain_of(steps: Sequence[Method], names: Sequence[str | None] | None = None) -> Chain:
    """Return the chain of some methods; a name that is None follows from the method."""
    given = names or [None] * len(steps)
    return Chain(tuple(steps), member_names(steps, given))


def member_names(steps: Sequence[Method], given: Sequence[str | None]) -> tuple[str, ...]:
    """Return the names of members: those given, and the names of methods, numbered where repeated."""
    plain = [step.name for step, name in zip(steps, given, strict=True) if name is None]
    repeated = {name for name, count in Counter(plain).items() if count > 1}
    counts: Counter[str] = Counter()
    names = []
    for step, name in zip(steps, given, strict=True):
        counts[step.name] += name is None
        numbered = f"{step.name}_{counts[step.name]}" if step.name in repeated else step.name
        names.append(numbered if name is None else name)
    return tuple(names)


def parameters_of(method: Method) -> dict[str, Any]:
    """Return the parameters of a method as they are recorded; for a chain, those of each member."""
    if not isinstance(method, Chain):
        return asdict(cast(Any, method))
    members = zip(method.names, method.steps, strict=True)
    return {
        "steps": [{"name": step.name, "as": name, **asdict(cast(Any, step))} for name, step in members],
    }


def require_end(name: str, last: Method) -> None:
    """Refuse a last method that only prepares rows for another one."""
    if last.tags.step:
        raise ParameterError(
            "steps",
            f"{name} prepares rows for the method after it, and there is none: end with a method such as pca",
        )
