"""The program: `streamdr`, and `python -m streamdr`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line. Ctrl-C while it is still being imported ends it without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from streamdr.cli import app

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    app.main()


if __name__ == "__main__":
    main()
