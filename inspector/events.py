"""What a running inspection says before its report: counts for a progress bar, tokens as they are drawn."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """`done` of `total` units (tokens, or steps of a download) of a stage."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class SampledTokens:
    """One step of sampling. sequences: 1-based continuation numbers; ids: the token each of them drew; logprobs: its
    raw and processed logprob, nats."""

    sequences: tuple[int, ...]
    ids: tuple[int, ...]
    raw_logprobs: tuple[float, ...]
    processed_logprobs: tuple[float, ...]


Event = Progress | SampledTokens
Running = Generator[Event, None, T]  # yields events, returns T


def finish(running: Generator[Event, None, T]) -> T:
    """Run to the end, dropping the events."""
    while True:
        try:
            next(running)
        except StopIteration as end:
            return end.value
