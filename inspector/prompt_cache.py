"""What was computed for earlier prompts, so that no work is done twice: hidden states, keys and values, scored rows.

Held by one inspector, for one model; bounded in bytes, least recently used out first.
"""

import copy
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from inspector.scoring import ScoredRows

# Below this a shared beginning saves nothing worth a difference in the last digits.
SHORTEST_PREFIX = 64
ROWS_KEPT = 4  # scored tables a prompt: undoing a change of parameters costs nothing


@dataclass
class Entry:
    """One prompt. hidden: [T, H]; keys_values: of all T tokens; tables: scored rows by what they were scored with."""

    ids: tuple[int, ...]
    hidden: Tensor
    keys_values: DynamicCache
    tables: dict[Hashable, tuple[int, ScoredRows]] = field(default_factory=dict)

    def known_rows(self, key: Hashable, boundary: int, common: int) -> ScoredRows | None:
        """Rows scored before that hold for a text that shares `common` tokens and has this boundary."""
        earlier, rows = self.tables.get(key, (0, None))
        if rows is None:
            return None
        valid = min(common, len(rows)) if earlier == boundary else min(common, len(rows), earlier, boundary)
        return rows[:valid] if valid else None

    @property
    def bytes(self) -> int:
        tensors = [self.hidden]
        tensors += [t for layer in self.keys_values.layers for t in (layer.keys, layer.values) if t is not None]
        tensors += [getattr(rows, f.name) for _, rows in self.tables.values() for f in fields(ScoredRows)]
        return sum(t.numel() * t.element_size() for t in tensors)


class PromptCache:
    """A few prompts within `budget` bytes; 0 keeps none. Safe to use from several threads."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._entries: list[Entry] = []  # most recently used last
        self._lock = threading.Lock()

    def find(self, ids: Sequence[int]) -> tuple[Entry | None, int]:
        """The entry that shares the longest beginning with `ids`, and its length in tokens."""
        with self._lock:
            best, common = None, 0
            for entry in self._entries:
                shared = common_length(entry.ids, ids)
                if shared > common:
                    best, common = entry, shared
            is_same = best is not None and common == len(ids)
            if best is None or (not is_same and common < SHORTEST_PREFIX):
                return None, 0
            self._entries.remove(best)
            self._entries.append(best)
            return best, common

    def add(self, entry: Entry, key: Hashable, boundary: int, rows: ScoredRows) -> None:
        """Keep an entry and its newest table, in place of entries whose ids it begins with; drop what no longer fits."""
        with self._lock:
            entry.tables.pop(key, None)
            entry.tables[key] = (boundary, rows)
            while len(entry.tables) > ROWS_KEPT:
                del entry.tables[next(iter(entry.tables))]
            self._entries = [e for e in self._entries if e is not entry and common_length(e.ids, entry.ids) < len(e.ids)]
            self._entries.append(entry)
            while self._entries and sum(e.bytes for e in self._entries) > self.budget:
                del self._entries[0]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(e.bytes for e in self._entries)


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids both begin with."""
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return min(len(a), len(b))


def shortened(keys_values: DynamicCache, length: int) -> DynamicCache | None:
    """A cache of the first `length` tokens that can be extended without touching the given one.

    None where a layer no longer holds them: a sliding window that has moved on, or a recurrent state.
    """
    drop = keys_values.get_seq_length() - length
    fork = copy.copy(keys_values)
    fork.layers = []
    for layer in keys_values.layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            if drop:
                return None
            fork.layers.append(copy.deepcopy(layer))
            continue
        # these layers replace their tensors when they grow, so the copy may share them
        fork.layers.append(copy.copy(layer))
        if drop and isinstance(layer, DynamicSlidingWindowLayer) and layer.get_seq_length() >= layer.sliding_window:
            return None
        if drop:
            fork.layers[-1].crop(-drop)
    return fork
