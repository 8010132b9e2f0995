"""Locations: a path on this machine, or the URL of a remote store.

An address keeps credentials and endpoints apart from its URL. Only the URL is shown: printing, recording
or logging an address cannot leak a secret, since its text holds none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from streamdr.core.safe_text import keep_secret, redact_value
from streamdr.errors import ConfigError

Option = str | int | float | bool

BUCKET_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https"})
"""The schemes that obstore reads: the first part of such an address is a bucket, or a server."""

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<user>[^/?#]*)@)?(?P<place>[^?#]*)(?:\?(?P<query>.*))?"
)
_VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})", re.ASCII)
_SHAPE = "an address looks like s3://bucket/name.zarr"
_USER_OPTIONS = {
    "s3": ("access_key_id", "secret_access_key"),
    "s3a": ("access_key_id", "secret_access_key"),
    "az": ("account_name", "account_key"),
    "azure": ("account_name", "account_key"),
}
"""The names of the options that the user and the password of an address stand for."""
_CONTAINER_IS_USER = ("abfs", "abfss")
"""Here the part before the @ is a container, not a person."""

_options: ContextVar[tuple[tuple[str, Option], ...]] = ContextVar("streamdr_storage_options", default=())


@dataclass(frozen=True)
class Address:
    """A store that is reached by a URL. It pickles with its options, so that a worker can open it."""

    url: str
    """The URL without user, password, query and trailing slash."""
    options: tuple[tuple[str, Option], ...] = field(default=(), repr=False)
    """Credentials, endpoints and the like, in addition to those of the environment."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Take a URL apart. A user and a password in it, and its query, become options."""
        match = _URL.fullmatch(text)
        if match is None:
            raise ConfigError(f"{redact_value(text)!r} is not a valid address; {_SHAPE}")
        scheme, user, place = match["scheme"].lower(), match["user"], match["place"].rstrip("/")
        if scheme in _CONTAINER_IS_USER and user is not None:
            place, user = f"{user}@{place}", None
        bucket, *names = place.split("/")
        no_bucket = not bucket and (scheme in BUCKET_SCHEMES or not names)
        if no_bucket or any(name in ("", ".", "..") for name in names):
            raise ConfigError(f"{redact_value(text)!r} has an empty part, or one of dots; {_SHAPE}")
        if ":" in bucket and scheme in _USER_OPTIONS:
            raise ConfigError(
                f"{redact_value(text)!r}: the part before the bucket is not valid; write / and + in a secret "
                "as %2F and %2B, or set the keys in the environment"
            )
        given = dict(_options.get())
        if user is not None:
            names_of_user = _USER_OPTIONS.get(scheme, ("username", "password"))
            parts = [unquote(part) for part in user.split(":", 1)]
            keep_secret([("password", parts[-1])])  # or a token, if it is the only part
            given |= zip(names_of_user, parts, strict=False)
        given |= parse_qsl(match["query"] or "", keep_blank_values=True)
        keep_secret(given.items())
        return cls(f"{scheme}://{place}", tuple(sorted(given.items())))

    @property
    def scheme(self) -> str:
        """The part before the colon."""
        return self.url.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Address:
        """The address without its last part; for a bucket, the bucket itself."""
        above = self.url.rpartition("/")[0]
        return self if above.endswith("/") else replace(self, url=above)

    def with_name(self, name: str) -> Address:
        """The address with its last part replaced."""
        return self.parent / name

    def __truediv__(self, below: str) -> Address:
        return replace(self, url=f"{self.url}/{below}")

    def resolve(self) -> Address:
        """The address: unlike paths, addresses are always absolute."""
        return self

    def contains(self, other: Address) -> bool:
        """Whether the other is this one, or lies below it."""
        return f"{other.url}/".startswith(f"{self.url}/")

    def __str__(self) -> str:
        return self.url


Location = Path | Address
"""Where something is."""


class RedactedAddress(str):
    """The text of an address without the credentials that were in it. `parse_location` still uses them."""

    given: str

    @classmethod
    def of(cls, text: str) -> str:
        """The text of a location as it may be shown, recorded and logged."""
        place = parse_location(text)
        if not isinstance(place, Address) or not ("@" in text or "?" in text):
            return text
        shown = cls(place.url)
        shown.given = text
        return shown


def below(folder: str, name: str) -> str:
    """The text of the location `name` in a folder, with the credentials of the folder."""
    text = folder.given if isinstance(folder, RedactedAddress) else folder
    path, mark, query = text.partition("?") if is_remote(text) else (text, "", "")
    return RedactedAddress.of(f"{path.rstrip('/')}/{name}{mark}{query}")


def is_remote(text: str) -> bool:
    """Whether a text is an address rather than a path on this machine."""
    return _scheme(text) not in (None, "file")


def _scheme(text: str) -> str | None:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)
    return None if match is None else match[1].lower()


def parse_location(text: str | Path | Address) -> Location:
    """Parse a text as a path or an address."""
    if not isinstance(text, str):
        return text
    if isinstance(text, RedactedAddress):
        return Address.parse(text.given)
    if _scheme(text) == "file":
        path = text.partition("://")[2]
        if "@" in path.partition("/")[0]:
            raise ConfigError(
                f"{redact_value(text)!r}: a file has no user and no password; write the path alone"
            )
        return Path(unquote(path))
    if text.partition(":/")[0].lower() in BUCKET_SCHEMES and not is_remote(text):
        raise ConfigError(f"{redact_value(text)!r} has one slash where an address has two; {_SHAPE}")
    return Address.parse(text) if is_remote(text) else _home_expanded(text)


def _home_expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # ~name, where no user has that name
        raise ConfigError(f"{text!r} begins with the home of a user that does not exist") from error


def expand_variables(text: str) -> str:
    """A path with `$NAME` and `${NAME}` replaced by the variables of the environment.

    Addresses are returned unchanged: credentials do not belong into their text.
    """

    def value(match: re.Match[str]) -> str:
        name = match["name"] or match["braced"]
        if name not in os.environ:
            raise ConfigError(f"{text!r}: the environment variable {name} is not set; set it")
        return os.environ[name]

    return text if is_remote(text) else _VARIABLE.sub(value, text)


def local_path(text: str) -> Path:
    """Parse a text as a path; refuse an address."""
    place = parse_location(text)
    if isinstance(place, Address):
        raise ConfigError(f"{place}: must be on this machine; copy it here, and give its path")
    return place


@contextmanager
def storage_options(options: Mapping[str, Option | None]) -> Iterator[None]:
    """Use these keys, endpoints and the like for every address that is parsed in this block.

    Parameters
    ----------
    options : mapping of str to str, number or bool
        The configuration of obstore (`endpoint`, `region`, `access_key_id`, ...), or the storage options of
        fsspec. They take precedence over the environment. None leaves an option unchanged.

    Yields
    ------
    None
        The block runs with these options.

    Examples
    --------
    >>> import streamdr
    >>> with streamdr.storage_options({"endpoint": "http://127.0.0.1:9000", "region": "eu-1"}):
    ...     pca = streamdr.PCA(2)  # here .fit("s3://bucket/x.zarr") would use that endpoint
    """
    given = {**dict(_options.get()), **{name: value for name, value in options.items() if value is not None}}
    token = _options.set(tuple(sorted(given.items())))
    try:
        yield
    finally:
        _options.reset(token)
