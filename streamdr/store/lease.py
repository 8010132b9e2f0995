"""Leases: one run at a time writes an output.

A lease is a small file beside the output that names the run that writes it. A second run is refused. The
holder renews its lease while it is alive. A lease that is not renewed is taken over. The old holder may only
have been suspended, so each lease has a fencing token. `Lease.check`, called in the step that publishes,
compares it with the token in the file. A run that was taken over cannot replace what its successor wrote.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from streamdr.core.addresses import Location
from streamdr.core.digests import json_digest
from streamdr.errors import BusyError, Interrupted, StoreError
from streamdr.store.compare_and_swap import CompareAndSwap, Conflict, Version
from streamdr.store.opening import Output, open_backend
from streamdr.store.process_identity import Process
from streamdr.store.record import loads

LEASE_SECONDS = 30.0
LONGEST_SECONDS = 300.0
"""The longest time that a lease is watched, whatever duration it claims."""
_RENEWALS = 3
"""The number of renewals in the duration of a lease. One late renewal must not lose it."""

_POLLS = 30
"""The least number of times that a watched lease is read before it counts as expired."""
_POLL_SECONDS = 1.0

_LONGEST_TEXT = 1024
_BEGINNING = b'{\n  "token": '

Say = Callable[[str], None]


@dataclass(frozen=True)
class Claim:
    """The content of a lease: its holder, and how long it is valid without renewal."""

    token: int
    holder: Process
    since: str
    clock: float
    """The monotonic clock of the holder at the last renewal. All processes of a machine share this clock."""
    seconds: float

    @classmethod
    def after(cls, token: int, seconds: float) -> Claim:
        """Return a claim by this process, with a larger token than the given one."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(max(token + 1, time.time_ns()), Process.here(), since, time.monotonic(), seconds)

    @classmethod
    def parse(cls, data: bytes) -> Claim | None:
        """Return the claim in a lease file, or None if the file is damaged or has impossible values."""
        try:
            entries = loads(data)
            if entries.pop("digest") != json_digest(entries):
                return None
            claim = cls(**{**entries, "holder": Process(**entries["holder"])})
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        return claim if claim._is_possible else None

    @property
    def _is_possible(self) -> bool:
        """Whether all values have a possible type and lie in a possible range."""
        numbers, texts = (self.clock, self.seconds), (self.since, self.holder.host, self.holder.realm)
        return (
            type(self.token) is int
            and self.token >= 0
            and all(type(number) in (int, float) and math.isfinite(number) for number in numbers)
            and self.seconds > 0
            and all(isinstance(text, str) and len(text) <= _LONGEST_TEXT for text in texts)
            and all(text.isprintable() for text in texts)
            and type(self.holder.pid) is int
            and 0 < self.holder.pid < 2**31
            and type(self.holder.started) is int
        )

    def encode(self) -> bytes:
        """Return the content of the lease file, with a digest."""
        entries = asdict(self)
        return json.dumps({**entries, "digest": json_digest(entries)}, indent=2).encode("ascii")

    @property
    def is_over(self) -> bool | None:
        """Whether the holder has ended or was stopped for too long; None if this process cannot find out.

        A holder that is silent but not stopped is working: LAPACK holds the GIL for a whole decomposition,
        which may take an hour, and nothing can be renewed meanwhile.
        """
        if not self.holder.is_near:
            return None
        if not self.holder.is_running:
            return True
        return self.holder.is_stopped and time.monotonic() - self.clock > self.patience

    @property
    def patience(self) -> float:
        """The seconds after which a lease that was not renewed may be taken over."""
        return min(self.seconds, LONGEST_SECONDS)

    def __str__(self) -> str:
        return f"{self.holder}, since {self.since}"


class Hold:
    """The lease of one target, held by this process."""

    def __init__(self, target: Location, lease_file: CompareAndSwap, claim: Claim) -> None:
        self.target = target
        self.claim = claim
        self._lease_file = lease_file

    def check(self) -> None:
        """Raise StoreError unless this run still holds the lease."""
        found = self._lease_file.read()
        current = None if found is None else Claim.parse(found[0])
        if current is not None and current.token == self.claim.token:
            return
        fate = "its lease was removed or damaged" if current is None else f"by another run ({current})"
        raise StoreError(f"{self.target}: was taken over, {fate}; nothing of this run was published to it")

    def renew(self) -> bool:
        """Renew the lease. Return False if another run holds it.

        A damaged file is written again. It is not the lease of another run: a takeover writes a whole file.
        """
        found = self._lease_file.read()
        current = None if found is None else _parsed(self._lease_file, found[0])
        if found is None or (current is not None and current.token != self.claim.token):
            return False
        renewed = replace(self.claim, clock=time.monotonic())
        with suppress(Conflict):  # a concurrent takeover is noticed at the next renewal, or by `check`
            self._lease_file.replace(renewed.encode(), found[1])
        return True

    def release(self) -> None:
        """Remove the lease, if this run still holds it."""
        found = self._lease_file.read()
        current = None if found is None else Claim.parse(found[0])
        if found is not None and current is not None and current.token == self.claim.token:
            with suppress(Conflict):
                self._lease_file.remove(found[1])


class Lease:
    """The leases of all outputs of a run."""

    def __init__(self) -> None:
        self.lost = threading.Event()
        """Set when a renewal finds that another run has taken over."""
        self._holds: list[Hold] = []

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier run, unless the clock is set back."""
        return max(hold.claim.token for hold in self._holds)

    def check(self) -> None:
        """Raise StoreError if another run has taken over. This is the fence before publishing."""
        for hold in self._holds:
            hold.check()

    @contextmanager
    def hold(self, hold: Hold) -> Iterator[None]:
        """Renew the lease of one target in the background, and release it at the end."""
        self._holds.append(hold)
        done = threading.Event()
        renewing = threading.Thread(
            target=self._renew, args=(hold, done), name=f"streamdr-lease {hold.target.name}", daemon=True
        )
        renewing.start()
        try:
            yield
        finally:
            done.set()
            renewing.join()
            with suppress(OSError, StoreError):  # the work is done, and the lease ends with this process
                hold.release()

    def _renew(self, hold: Hold, done: threading.Event) -> None:
        while not done.wait(hold.claim.seconds / _RENEWALS):
            # A failure of the disk may be transient. Nothing is lost until another run takes over.
            with suppress(OSError, StoreError):
                if not hold.renew():
                    self.lost.set()
                    return


@contextmanager
def leased(
    targets: Sequence[Output],
    *,
    seconds: float = LEASE_SECONDS,
    stop: threading.Event | None = None,
    say: Say = lambda text: None,
) -> Iterator[Lease]:
    """Hold the leases of all targets, or raise BusyError.

    If the holder ran on this machine and has ended, its lease is taken over at once. If it is stopped, its
    lease is taken over when it was not renewed for its `seconds`. A holder on another machine, or a damaged
    file, is watched: the lease is taken over when it has not changed for that time. The clocks of two
    machines are never compared. `say` is called with a message before the wait, and `stop` ends the wait.
    """
    lease, stop = Lease(), stop or threading.Event()
    with ExitStack() as held:
        # All runs use the same order, so that of two runs that share outputs one gets all of them.
        outputs = {output.destination(): output for output in map(open_backend, targets)}
        for target in sorted(outputs, key=str):
            lease_file = outputs[target].lease_file()
            try:
                claim = _acquire(target, lease_file, seconds, stop, say)
            except OSError as error:
                raise StoreError(
                    f"{target}: cannot be written ({error.strerror or error}); choose another path"
                ) from error
            held.enter_context(lease.hold(Hold(target, lease_file, claim)))
        yield lease


def is_abandoned(target: Output) -> bool:
    """Return whether a run on this machine was killed while it held the lease of a target."""
    found = open_backend(target).lease_file().read()
    claim = None if found is None else Claim.parse(found[0])
    return claim is not None and claim.holder.is_near and not claim.holder.is_running


def _acquire(
    target: Location, lease_file: CompareAndSwap, seconds: float, stop: threading.Event, say: Say
) -> Claim:
    while True:
        token, version = 0, None
        if (found := lease_file.read()) is not None:
            data, version = found
            current = _parsed(lease_file, data)
            over = None if current is None else current.is_over
            if over is False:
                raise _busy(target, current)
            if over is None:
                # A damaged file is watched too: its run may be alive, and would write it again.
                wait = seconds if current is None else current.patience
                say(f"{target}: watching for {wait:g} seconds whether another run lives ({_name(current)})")
                _watch(target, lease_file, version, wait, stop)
            token = 0 if current is None else current.token
        claim = Claim.after(token, seconds)
        with suppress(Conflict):  # another run was faster: read its claim
            version = lease_file.replace(claim.encode(), version)
            if found is None:
                # Since the file was found missing, other runs may have come and gone, with larger tokens than
                # this one. A token that is drawn now is larger than all of theirs.
                claim = Claim.after(claim.token, seconds)
                lease_file.replace(claim.encode(), version)
            return claim


def _watch(
    target: Location, lease_file: CompareAndSwap, version: Version, wait: float, stop: threading.Event
) -> None:
    """Return when a lease is removed, or unchanged for `wait` seconds. Raise BusyError if it changes."""
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        if stop.wait(min(wait / _POLLS, _POLL_SECONDS)):
            raise Interrupted("stopped while another run's lease was watched")
        found = lease_file.read()
        if found is None:
            return
        if found[1] != version:
            raise _busy(target, Claim.parse(found[0]))


def _busy(target: Location, claim: Claim | None) -> BusyError:
    return BusyError(f"{target}: is being written by another run ({_name(claim)}); wait for it, or stop it")


def _name(claim: Claim | None) -> str:
    return "its lease is damaged" if claim is None else str(claim)


def _parsed(lease_file: CompareAndSwap, data: bytes) -> Claim | None:
    """Return the claim in a lease file, or None if it is damaged. Raise StoreError if it is no lease."""
    claim = Claim.parse(data)
    if claim is None and not _is_damaged_lease(data):
        raise StoreError(
            f"{lease_file}: is not a lease of streamdr, but has the name of one; move it elsewhere"
        )
    return claim


def _is_damaged_lease(data: bytes) -> bool:
    """Return whether a file without a claim may have been a lease: truncated, empty, or partly damaged."""
    begun = data[: len(_BEGINNING)] == _BEGINNING[: len(data)]
    return begun or not data.strip(b"\0") or b'"token"' in data or b'"digest"' in data
