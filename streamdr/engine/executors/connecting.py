"""Connecting to a running dask scheduler: its address, encryption, and errors.

Everyone who reaches a dask scheduler can run code on it and on its workers. So connections to other machines
are encrypted, with certificates on both sides, unless `insecure` is set.
"""

from __future__ import annotations

import json
import socket
from ipaddress import ip_address
from pathlib import Path

from distributed import Client, Security
from distributed.comm import parse_address
from distributed.comm.addressing import parse_host_port

from streamdr.core.execution import OPEN_TO_OTHERS, TLS, Execution
from streamdr.core.files import read_regular
from streamdr.core.safe_text import redact_value
from streamdr.errors import EngineError, ParameterError

CONNECT_SECONDS = 10.0
_ENCRYPTED = ("tls", "wss")
_LARGEST_FILE = 1 << 20


def join(scheduler: str, execution: Execution) -> Client:
    """Return a client of a running scheduler, given by its address or by its file."""
    address = scheduler_address(scheduler)
    if not execution.insecure:
        require_private(address)
    security = certificates(execution.tls) if execution.tls is not None else Security()
    if address.startswith("tls://") and security.tls_ca_file is None:  # type: ignore[attr-defined]  # one of its __slots__
        raise ParameterError(
            "scheduler", f"{address}: TLS needs certificates; give execution.tls its ca, cert and key"
        )
    try:
        return Client(address, timeout=CONNECT_SECONDS, security=security, set_as_default=False)
    except (OSError, TimeoutError, RuntimeError, TypeError, ValueError) as error:
        raise EngineError(
            f"{address}: no dask scheduler answers there ({_cause(error)}); check that it runs, that address "
            "and port are right, that no firewall blocks it, and that both sides use TLS, or neither"
        ) from error


def scheduler_address(scheduler: str) -> str:
    """Return the address of a scheduler, which is given directly or read from the file of the scheduler."""
    if "://" in scheduler:
        return scheduler
    path = Path(scheduler)
    try:
        address = json.loads(read_regular(path, _LARGEST_FILE))["address"]
    except OSError as error:
        raise EngineError(
            f"{scheduler}: cannot be read: {error.strerror}; start the scheduler first: dask scheduler "
            f"--scheduler-file {scheduler}"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EngineError(f"{scheduler}: is not the file of a dask scheduler: it has no address") from error
    if not isinstance(address, str):
        raise EngineError(f"{scheduler}: is not the file of a dask scheduler: its address is not a string")
    return address


def require_private(address: str) -> None:
    """Refuse an unencrypted connection to another machine."""
    protocol, location = parse_address(address)
    if protocol in _ENCRYPTED or protocol == "inproc":
        return
    try:
        host, _ = parse_host_port(location, 0)
    except ValueError:
        host = ""
    if not host:
        raise ParameterError(
            "scheduler", f"{redact_value(address)}: is not an address; an example is tcp://127.0.0.1:8786"
        )
    if not is_loopback(host):
        raise ParameterError(
            "scheduler", f"{address}: is not on this machine and not encrypted, and {OPEN_TO_OTHERS}"
        )


def is_loopback(host: str) -> bool:
    """Return whether all addresses of a host are loopback addresses."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        raise EngineError(
            f"{host}: there is no machine with this name ({error}); check the spelling"
        ) from error
    return all(ip_address(address[4][0]).is_loopback for address in found)


def certificates(tls: TLS) -> Security:
    """Return the security settings of dask, with the same certificate for client, scheduler and worker."""
    for file in (tls.ca, tls.cert, tls.key):
        if not Path(file).is_file():
            raise ParameterError("tls", f"{file}: there is no such file; give the paths of PEM files")
    return Security(
        require_encryption=True,
        tls_ca_file=tls.ca,
        tls_client_cert=tls.cert,
        tls_client_key=tls.key,
        tls_scheduler_cert=tls.cert,
        tls_scheduler_key=tls.key,
        tls_worker_cert=tls.cert,
        tls_worker_key=tls.key,
    )


def _cause(error: BaseException) -> str:
    """Return the message of the first error in a chain, which says more than a timeout."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return str(error) or type(error).__name__
