"""A digest of what a function computes: its code, its defaults, and everything that the code refers to.

Two functions with equal digests compute the same. A function that cannot be reduced to plain values has no
digest, so its results must not be stored in the ledger.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

_TRUSTED = frozenset({"numpy", "scipy", "sklearn", "math", "cmath", "operator", "itertools", "functools"})
"""Packages whose functions are identified by their names and the version of the package."""
_ESCAPES = frozenset(
    {"eval", "exec", "compile", "globals", "locals", "vars", "open", "input", "id", "hash", "__import__"}
)
"""Builtins through which code reaches values that are not visible in it."""
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_WRITES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME"})
_DEPTH = 50


class UnidentifiedError(Exception):
    """Something that a function depends on cannot be distinguished from another of its kind."""


def function_digest(function: Any) -> str:
    """Return the digest of what a function computes, or raise UnidentifiedError if it cannot be analysed."""
    walk = _Walk()
    walk.value(function, 0)
    return walk.digest()


class _Walk:
    """One walk through all that a function refers to. Each value is hashed with its type and length."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(repr(sys.version_info[:3]).encode())
        self._visited: dict[int, int] = {}
        self._alive: list[Any] = []  # an id is unique only while its object is alive

    def digest(self) -> str:
        return self._hash.hexdigest()

    def _write(self, *words: str | bytes) -> None:
        for word in words:
            content = word.encode("utf-8", "surrogatepass") if isinstance(word, str) else word
            self._hash.update(len(content).to_bytes(8, "little") + content)

    def value(self, value: Any, depth: int) -> None:
        """Hash any value, or raise UnidentifiedError."""
        if depth > _DEPTH:
            raise UnidentifiedError("values that are nested too deeply")
        if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes):
            self._write(type(value).__name__, repr(value))
        elif isinstance(value, np.ndarray | np.generic | np.dtype):
            self._numbers(value)
        elif type(value) in (tuple, list, dict, set, frozenset):
            self._container(value, depth)
        elif isinstance(value, types.CodeType):
            self._code(value, depth)
        elif not self._is_trusted(value):
            self._callable(value, depth)

    def _container(self, values: Any, depth: int) -> None:
        if isinstance(values, list | dict) and self._was_visited(values):  # these may contain themselves
            return
        self._write(type(values).__name__, str(len(values)))
        if isinstance(values, dict):
            for name, item in values.items():
                self.value(name, depth + 1)
                self.value(item, depth + 1)
        elif isinstance(values, set | frozenset):
            if any(type(item) not in (bool, int, float, complex, str, bytes) for item in values):
                raise UnidentifiedError("a set of more than numbers and strings")
            self._write(*sorted(f"{type(item).__name__} {item!r}" for item in values))
        else:
            for item in values:
                self.value(item, depth + 1)

    def _numbers(self, value: Any) -> None:
        dtype = value if isinstance(value, np.dtype) else value.dtype
        if type(value) not in (np.ndarray, np.memmap) and isinstance(value, np.ndarray):
            raise UnidentifiedError(f"an array of the type {type(value).__name__}")
        if dtype.hasobject:
            raise UnidentifiedError("an array of objects")
        self._write("numbers", type(value).__name__, repr(dtype.descr))
        if not isinstance(value, np.dtype):
            self._write(repr(value.shape), np.ascontiguousarray(value).tobytes())

    def _callable(self, value: Any, depth: int) -> None:
        """Hash a function, a partial or a method."""
        if self._was_visited(value):
            return
        if type(value) is types.FunctionType:
            self._function(value, depth)
        elif type(value) is functools.partial:
            self._write("partial")
            self.value((value.func, value.args, value.keywords), depth + 1)
        elif type(value) is types.MethodType:
            self._write("method")
            self.value((value.__func__, value.__self__), depth + 1)
        else:
            raise UnidentifiedError(f"a {type(value).__module__}.{type(value).__qualname__}")

    def _was_visited(self, value: Any) -> bool:
        """Return whether this object was hashed already. If so, hash a reference to it."""
        if id(value) in self._visited:
            self._write("again", str(self._visited[id(value)]))
            return True
        self._visited[id(value)] = len(self._visited)
        self._alive.append(value)
        return False

    def _function(self, function: types.FunctionType, depth: int) -> None:
        self._write("function")
        self._code(function.__code__, depth + 1)
        self.value(function.__defaults__, depth + 1)
        self.value(function.__kwdefaults__, depth + 1)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError as error:
                raise UnidentifiedError("a variable that has no value yet") from error
            self.value(content, depth + 1)
        for name in sorted(set(_globals_of(function.__code__))):
            self._write("global", name)
            if name in function.__globals__:
                self.value(function.__globals__[name], depth + 1)
            elif name in _ESCAPES:
                raise UnidentifiedError(f"a call of {name}")

    def _code(self, code: types.CodeType, depth: int) -> None:
        """Hash everything in the code except its file and its line numbers."""
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._write("code", repr(counts), repr(names), code.co_code, code.co_exceptiontable)
        self.value(code.co_consts, depth + 1)

    def _is_trusted(self, value: Any) -> bool:
        """Return whether a trusted package has this object under its name. If so, hash the name."""
        plain = isinstance(value, types.ModuleType | types.FunctionType | types.BuiltinFunctionType | type)
        if not plain and _package(type(value).__module__) not in _TRUSTED:
            return False  # its class may define any attributes
        if isinstance(value, types.ModuleType):
            module, path = value.__name__, ""
        else:
            module = "numpy" if isinstance(value, np.ufunc) else str(getattr(value, "__module__", ""))
            path = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
        package = _package(module)
        if package not in _TRUSTED and (package != "builtins" or path in _ESCAPES):
            return False
        found: Any = sys.modules.get(module)
        for part in path.split(".") if path else ():
            found = getattr(found, part, None)
        if found is not value:
            return False
        self._write("known", module, path, str(getattr(sys.modules[package], "__version__", "")))
        return True


def _package(module: str) -> str:
    return module.partition(".")[0]


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that code, and code nested in it, refers to."""
    for step in dis.get_instructions(code):
        if step.opname in _GLOBAL:
            yield str(step.argval)
        elif step.opname == "IMPORT_NAME":
            if _package(str(step.argval)) not in _TRUSTED:
                raise UnidentifiedError(f"an import of {step.argval}")
        elif step.opname in _WRITES:
            raise UnidentifiedError(f"an assignment to the global {step.argval}")
        elif step.opname == "STORE_DEREF" and step.argval in code.co_freevars:
            raise UnidentifiedError(f"an assignment to {step.argval}, which is not its own")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)
