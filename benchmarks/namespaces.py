"""Two hosts on one machine: network namespaces and a link of limited bandwidth. Needs root and iproute2."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_BURST, _LATENCY = "256kb", "50ms"


@dataclass(frozen=True)
class Host:
    """A network namespace with one address."""

    name: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words with which a command line runs on this host."""
        return "ip", "netns", "exec", self.name

    def sent_bytes(self) -> int:
        """Return the bytes that its interface has sent to the other host."""
        command = (*self.prefix, "cat", "/proc/net/dev")
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        (line,) = (line for line in lines if line.strip().startswith("veth"))
        return int(line.partition(":")[2].split()[8])

    def enter(self) -> None:
        """Move this thread, and all that it starts, to this host."""
        with Path("/run/netns", self.name).open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"the namespace {self.name} cannot be entered")


@contextmanager
def two_hosts(rate: str) -> Iterator[tuple[Host, Host]]:
    """Provide two hosts, with a link of this rate (as tc spells it) in both directions."""
    hosts = tuple(Host(f"bench-{os.getpid()}-{n}", f"10.77.0.{n}") for n in (1, 2))
    ends = [f"veth{n}" for n in (1, 2)]
    try:
        for host in hosts:
            _run("ip", "netns", "add", host.name)
        first, second = hosts
        peer = ("type", "veth", "peer", "name", ends[1], "netns", second.name)
        _run("ip", "link", "add", ends[0], "netns", first.name, *peer)
        for host, end in zip(hosts, ends, strict=True):
            _run(*host.prefix, "ip", "address", "add", f"{host.address}/24", "dev", end)
            _run(*host.prefix, "ip", "link", "set", end, "up")
            _run(*host.prefix, "ip", "link", "set", "lo", "up")
            shape = ("tbf", "rate", rate, "burst", _BURST, "latency", _LATENCY)
            _run(*host.prefix, "tc", "qdisc", "add", "dev", end, "root", *shape)
        yield first, second
    finally:
        for host in hosts:
            subprocess.run(("ip", "netns", "delete", host.name), check=False, capture_output=True)


def _run(*words: str) -> None:
    subprocess.run(words, check=True)
