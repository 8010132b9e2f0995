"""The program: `streamdr`, and `python -m streamdr`."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command line. Ctrl-C while it is still being imported ends it without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from streamdr.cli import app

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    try:
        app.main()
    finally:
        _drop_unread_messages()


def _drop_unread_messages() -> None:
    """Discard messages whose reader is gone. Python would end with code 120, as it could not write them."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


if __name__ == "__main__":
    main()
