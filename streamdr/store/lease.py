"""Leases: of all the runs that would write an output one does, for as long as it can prove its right to.

A lease is a small file beside the output that says who writes it. Whoever comes second is refused. The
holder renews its lease as long as it lives; a lease that is not renewed is taken over. The old holder may
only have been asleep, so each lease has a token, and `Lease.check`, called in the very step that publishes,
compares it with the file's: a run that was taken over cannot replace what its successor wrote.
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
"""What a lease may claim: nobody waits longer for one that says more."""
_RENEWALS = 3
"""How often a lease is renewed before it would run out: one late renewal is no reason to lose it."""

_LOOKS = 30
"""How often a lease is looked at, at least, in the time that it takes to run out."""
_LOOK_SECONDS = 1.0

_LONGEST_TEXT = 1024
_BEGINNING = b'{\n  "token": '

Say = Callable[[str], None]


@dataclass(frozen=True)
class Claim:
    """What a lease says: who holds it, and by when it is to be renewed."""

    token: int
    holder: Process
    since: str
    clock: float
    """The holder's monotonic clock at the last renewal, which all processes of one machine share."""
    seconds: float

    @classmethod
    def after(cls, token: int, seconds: float) -> Claim:
        """A claim by this process, later than the one with the given token."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(max(token + 1, time.time_ns()), Process.here(), since, time.monotonic(), seconds)

    @classmethod
    def parse(cls, data: bytes) -> Claim | None:
        """The claim in a lease file, or None if the file is damaged, or says what no lease can."""
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
        """Whether everything is of the type, and in the range, that it can be."""
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
        """The lease file, sealed with a digest."""
        entries = asdict(self)
        return json.dumps({**entries, "digest": json_digest(entries)}, indent=2).encode("ascii")

    @property
    def is_over(self) -> bool | None:
        """Whether the holder has ended or was stopped for too long; None when that cannot be told from here.

        One that is silent and not stopped is at work: LAPACK keeps Python's lock for a whole decomposition,
        which may take an hour, and nothing can be renewed meanwhile.
        """
        if not self.holder.is_near:
            return None
        if not self.holder.is_running:
            return True
        return self.holder.is_stopped and time.monotonic() - self.clock > self.patience

    @property
    def patience(self) -> float:
        """For how long a lease that is not renewed is left to its holder."""
        return min(self.seconds, LONGEST_SECONDS)

    def __str__(self) -> str:
        return f"{self.holder}, since {self.since}"


class Hold:
    """The lease of one target, held by this process."""

    def __init__(self, target: Location, slot: CompareAndSwap, claim: Claim) -> None:
        self.target = target
        self.claim = claim
        self._slot = slot

    def check(self) -> None:
        """Raise StoreError unless the lease is this run's."""
        found = self._slot.read()
        current = None if found is None else Claim.parse(found[0])
        if current is not None and current.token == self.claim.token:
            return
        fate = "its lease was removed or damaged" if current is None else f"by another run ({current})"
        raise StoreError(f"{self.target}: was taken over, {fate}; nothing of this run was published to it")

    def renew(self) -> bool:
        """Say that this run is alive. False when the lease has become another's.

        A damaged file is written anew. It is nobody else's: taking over is writing a whole one.
        """
        found = self._slot.read()
        current = None if found is None else _parsed(self._slot, found[0])
        if found is None or (current is not None and current.token != self.claim.token):
            return False
        renewed = replace(self.claim, clock=time.monotonic())
        with suppress(Conflict):  # whoever was faster is seen at the next renewal, or by `check`
            self._slot.replace(renewed.encode(), found[1])
        return True

    def release(self) -> None:
        """Remove the lease, if it is still this run's."""
        found = self._slot.read()
        current = None if found is None else Claim.parse(found[0])
        if found is not None and current is not None and current.token == self.claim.token:
            with suppress(Conflict):
                self._slot.remove(found[1])


class Lease:
    """The leases of all outputs of a run."""

    def __init__(self) -> None:
        self.lost = threading.Event()
        """Set when a renewal has found that another run took over."""
        self._holds: list[Hold] = []

    @property
    def token(self) -> int:
        """A number that is larger than that of every run before, as long as nobody sets the clock back."""
        return max(hold.claim.token for hold in self._holds)

    def check(self) -> None:
        """Raise StoreError when another run has taken over: the fence before everything that is published."""
        for hold in self._holds:
            hold.check()

    @contextmanager
    def hold(self, hold: Hold) -> Iterator[None]:
        """Renew one target's lease in the background, and release it at the end."""
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
            with suppress(OSError, StoreError):  # what is done is done: the lease ends with this process
                hold.release()

    def _renew(self, hold: Hold, done: threading.Event) -> None:
        while not done.wait(hold.claim.seconds / _RENEWALS):
            # A disk that fails now may do better next time. Until somebody takes over, nothing is lost.
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
    """Be the one run that writes the targets, or raise BusyError.

    A lease whose holder ran on this machine and has ended is taken over at once; that of one that is stopped,
    when it was not renewed for its `seconds`. Of a holder elsewhere, or of a damaged file, nothing can be
    told but by watching: the lease is taken over when it has not changed for so long. The clocks of two
    machines are never compared. `say` is told of the wait, and `stop` ends it.
    """
    lease, stop = Lease(), stop or threading.Event()
    with ExitStack() as held:
        # In one order for all runs, so that of two that share outputs one gets them all.
        outputs = {output.destination(): output for output in map(open_backend, targets)}
        for target in sorted(outputs, key=str):
            slot = outputs[target].lease_file()
            try:
                claim = _acquire(target, slot, seconds, stop, say)
            except OSError as error:
                raise StoreError(
                    f"{target}: cannot be written ({error.strerror or error}); choose another path"
                ) from error
            held.enter_context(lease.hold(Hold(target, slot, claim)))
        yield lease


def is_abandoned(target: Output) -> bool:
    """Whether a run on this machine has ended, by force, with the lease of a target in its hands."""
    found = open_backend(target).lease_file().read()
    claim = None if found is None else Claim.parse(found[0])
    return claim is not None and claim.holder.is_near and not claim.holder.is_running


def _acquire(
    target: Location, slot: CompareAndSwap, seconds: float, stop: threading.Event, say: Say
) -> Claim:
    while True:
        token, version = 0, None
        if (found := slot.read()) is not None:
            data, version = found
            current = _parsed(slot, data)
            over = None if current is None else current.is_over
            if over is False:
                raise _busy(target, current)
            if over is None:
                # A damaged file is watched as well: its run may be alive, and will mend it.
                wait = seconds if current is None else current.patience
                say(f"{target}: watching for {wait:g} seconds whether another run lives ({_name(current)})")
                _watch(target, slot, version, wait, stop)
            token = 0 if current is None else current.token
        claim = Claim.after(token, seconds)
        with suppress(Conflict):  # another run was faster: see who
            version = slot.replace(claim.encode(), version)
            if found is None:
                # An empty slot does not tell how many runs came and went since it was looked at, with tokens
                # later than this one. A token that is taken now is later than all of theirs.
                claim = Claim.after(claim.token, seconds)
                slot.replace(claim.encode(), version)
            return claim


def _watch(
    target: Location, slot: CompareAndSwap, version: Version, wait: float, stop: threading.Event
) -> None:
    """Return when a lease has not changed for so long, or is gone. BusyError when it is renewed."""
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        if stop.wait(min(wait / _LOOKS, _LOOK_SECONDS)):
            raise Interrupted("stopped while another run's lease was watched")
        found = slot.read()
        if found is None:
            return
        if found[1] != version:
            raise _busy(target, Claim.parse(found[0]))


def _busy(target: Location, claim: Claim | None) -> BusyError:
    return BusyError(f"{target}: is being written by another run ({_name(claim)}); wait for it, or stop it")


def _name(claim: Claim | None) -> str:
    return "its lease is damaged" if claim is None else str(claim)


def _parsed(slot: CompareAndSwap, data: bytes) -> Claim | None:
    """The claim in a lease file, None if it is damaged, or StoreError where it never was a lease."""
    claim = Claim.parse(data)
    if claim is None and not _is_remains(data):
        raise StoreError(f"{slot}: is not a lease of streamdr, and is in the place of one; move it elsewhere")
    return claim


def _is_remains(data: bytes) -> bool:
    """Whether a file that holds no claim may have held one: cut short, empty, or with some bytes damaged."""
    begun = data[: len(_BEGINNING)] == _BEGINNING[: len(data)]
    return begun or not data.strip(b"\0") or b'"token"' in data or b'"digest"' in data
