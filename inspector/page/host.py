"""The one model that all sessions share, and how it is exchanged."""

import gc
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from inspector.errors import InspectorError
from inspector.events import Progress, Running, finish
from inspector.inspection import Inspector


class ModelHost:
    """Holds at most one model between requests. Whoever runs one keeps it for that run, whatever is loaded meanwhile."""

    def __init__(self, name: str = "embedded", dtype: str = "auto", device: str = "auto") -> None:
        self._first = (name, dtype, device)
        self._loading = threading.Lock()
        self.inspector: Inspector | None = None

    def preload(self) -> None:
        """Start loading the first model, so that the page opens meanwhile; a failure is told to who asks for it next."""
        threading.Thread(target=self._quietly, daemon=True).start()

    def get(self) -> Running[Inspector]:
        """The model, loaded first if need be. Raises ModelError."""
        yield from self._take()
        try:
            if self.inspector is None:
                self.inspector = yield from _load(*self._first)
            return self.inspector
        finally:
            self._loading.release()

    def change(self, name: str, dtype: str, device: str) -> Running[Inspector]:
        """Load another model. The old one is let go only once the new one is whole, so a failure costs nothing."""
        yield from self._take()
        try:
            self.inspector = yield from _load(name, dtype, device)
        finally:
            self._loading.release()
        gc.collect()
        return self.inspector

    def _take(self) -> Running[None]:
        while not self._loading.acquire(timeout=0.3):
            yield Progress("loading the model", 0, 0)

    def _quietly(self) -> None:
        try:
            finish(self.get())
        except InspectorError as error:
            print(f"logit-inspector: {error}")


def _load(name: str, dtype: str, device: str) -> Running[Inspector]:
    events: queue.SimpleQueue[Progress] = queue.SimpleQueue()
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(Inspector.load, name, dtype=dtype, device=device, on_progress=lambda *event: events.put(Progress(*event)))
        yield Progress("loading the model", 0, 0)
        while not loading.done():
            try:
                yield events.get(timeout=0.2)
            except queue.Empty:
                continue
    return loading.result()
