"""The real app as its own process, on a free port, as a user starts it."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def served_app(folder: Path) -> Iterator[str]:
    """Starts `app.py` and gives its address; its files and its log go into `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"GRADIO_SERVER_PORT": str(port), "GRADIO_TEMP_DIR": str(folder / "files"), "OMP_NUM_THREADS": "1"}
    log = folder / "app.log"
    with log.open("w") as out:
        app = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env={**os.environ, **settings}, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait(f"http://127.0.0.1:{port}", app, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        app.terminate()
        app.wait(timeout=30)


def _wait(url: str, app: subprocess.Popen, log: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if app.poll() is not None:
            raise RuntimeError(f"the app ended with {app.returncode}:\n{log.read_text()}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    raise TimeoutError(f"no answer from {url} in {seconds} s:\n{log.read_text()}")
