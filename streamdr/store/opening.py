"""The choice of a backend by its location, and the operations of backends as functions of a location."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from streamdr.core.addresses import Address, Location, parse_location
from streamdr.store.backend import Backend
from streamdr.store.local import LocalBackend
from streamdr.store.objects import ObjectBackend

P = ParamSpec("P")
R = TypeVar("R")
Output: TypeAlias = str | Location | Backend


def open_backend(output: Output) -> Backend:
    """Return the backend of an output.

    Parameters
    ----------
    output
        The path or the address of the output, as text or parsed; or its backend, which is returned.

    Returns
    -------
    Backend
        A `LocalBackend` for a path, an `ObjectBackend` for an address. Nothing is read.
    """
    if not isinstance(output, str | Path | Address):
        return output
    place = parse_location(output)
    return ObjectBackend(place) if isinstance(place, Address) else LocalBackend(place)


def _function(method: Callable[Concatenate[Backend, P], R]) -> Callable[Concatenate[Output, P], R]:
    """Return a method of backends as a function whose first argument is the location of the output."""

    def call(output: Output, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = getattr(open_backend(output), method.__name__)(*args, **kwargs)
        return result

    # With the name of the method it can be pickled, and sent to workers.
    call.__name__ = call.__qualname__ = method.__name__
    call.__doc__ = method.__doc__
    return call


adopt_rows = _function(Backend.adopt_rows)
check_output = _function(Backend.check_output)
create_embedding = _function(Backend.create_embedding)
create_rows = _function(Backend.create_rows)
draft = _function(Backend.draft)
existing_chunks = _function(Backend.existing_chunks)
exists = _function(Backend.exists)
finish = _function(Backend.finish)
load_model = _function(Backend.load_model)
open_embedding = _function(Backend.open_embedding)
open_rows = _function(Backend.open_rows)
read_group = _function(Backend.read_group)
require_space = _function(Backend.require_space)
save_model = _function(Backend.save_model)
stage = _function(Backend.stage)
stored_bytes = _function(Backend.stored_bytes)
sweep = _function(Backend.sweep)
write_rows = _function(Backend.write_rows)
