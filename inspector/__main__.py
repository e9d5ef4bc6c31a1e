"""`python -m inspector`, and what the command `logit-inspector` runs."""

import os
import signal
import sys


def run() -> int:
    """The command line's exit code. An interrupt while its imports take their seconds ends the process quietly."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from inspector.cli import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    sys.exit(run())
