"""Text that is safe to show: without secrets and control characters.

Names of arrays, dimensions and files, labels and records come from others. All text for a terminal, a log, an
error or a page passes through here: a line stays one line, and control characters, changes of direction and
undecodable bytes are escaped as in Python literals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

_SHORTEST_SECRET = 8
"""Shorter values may occur elsewhere by chance."""
_MOST_SECRETS = 1000
_secrets: dict[str, str] = {}
"""The secrets, with the text that is shown instead."""

_SECRET_WORDS = "key|secret|token|passw|credential|signature|sig|sas|auth|session|policy"
_SECRET_NAME = re.compile(
    rf"(?i)(?:^|[_-])(?:{_SECRET_WORDS})|(?:{_SECRET_WORDS})(?:$|[_-])|passw|token|secret"
)

_URL = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*):/{1,3}(?P<rest>[^\s'\"`<>]*)")
_PORT = r"(?!\d{1,5}(?:[/?#]|$))"
_PASSWORD = re.compile(rf"^[^/@:]*:{_PORT}.*@", re.DOTALL)
_USER = re.compile(r"^[^/?#]*@")
_QUERY = re.compile(r"\?.+|#.*=.*", re.DOTALL)
_CONTAINER_IS_USER = ("abfs", "abfss")
"""Here the part before the @ is a container, not a person."""
_NAME = r"(?:[\w-]+key|key[_-][\w-]+|[\w-]*(?:secret|token|passw|credential|signature)[\w-]*)"
_NAMED = (
    (re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*", re.DOTALL), r"\1***"),
    (re.compile(rf"(?i)({_NAME}=)[^\s\"',;&]+"), r"\1***"),
    (re.compile(rf"(?i)(['\"]{_NAME}['\"]\s*:\s*)(['\"]).*?\2"), r"\1\2***\2"),
)


def keep_secret(named: Iterable[tuple[str, object]]) -> None:
    """Register values whose names look like secrets: they are never shown."""
    for name, value in named:
        if isinstance(value, str) and len(value) >= _SHORTEST_SECRET and _SECRET_NAME.search(name):
            _remember("***", value, quote(value, safe=""), quote_plus(value))


def keep_keys_secret(text: str) -> None:
    """Register a value if it is an address with credentials: it is shown without them."""
    if ":/" in text and (shown := redact_value(text)) != text:
        for variant in (text, re.sub("/{2,}", "/", text)):  # unchanged, and as a path
            _remember(shown, variant, repr(variant)[1:-1], json.dumps(variant)[1:-1])


def _remember(shown: str, *variants: str) -> None:
    for variant in variants:
        _secrets[variant] = shown
    while len(_secrets) > _MOST_SECRETS:
        del _secrets[next(iter(_secrets))]


def redact(text: str) -> str:
    """The text without registered secrets and what looks like one: users and queries of URLs, keys."""
    for secret in sorted(_secrets, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, _secrets[secret])
    if ":/" in text:
        text = _URL.sub(lambda match: _without_secrets(match[0], match["scheme"], match["rest"]), text)
    for pattern, instead in _NAMED:
        text = pattern.sub(instead, text)
    return text


def redact_value(text: str) -> str:
    """A single value without secrets. As an address it may contain spaces and quotes."""
    match = re.match(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/{1,3}(?P<rest>.*)", text, re.DOTALL)
    return redact(text if match is None else _without_secrets(text, match["scheme"], match["rest"]))


def one_line(text: str) -> str:
    """The text without secrets and on one line."""
    return _escaped(redact(text))


def lines(text: str) -> str:
    """The text without secrets, its lines kept: for text that consists of separate lines."""
    return "\n".join(map(_escaped, redact(text).split("\n")))


def _without_secrets(whole: str, scheme: str, rest: str) -> str:
    shown = _PASSWORD.sub("***@", rest)
    if scheme.lower() not in _CONTAINER_IS_USER:
        shown = _USER.sub("***@", shown)
    shown = _QUERY.sub(lambda match: match[0][0] + "***", shown)
    return whole[: len(whole) - len(rest)] + shown


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
