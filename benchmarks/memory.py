"""Peak memory of scoring a long prompt, above what the loaded model takes.

    python -m benchmarks.memory [--tokens 8000] [--continuations 0]

Linux: the kernel's own high-water mark of the resident set (VmHWM), reset just before the inspection.
"""

import argparse
import gc
from pathlib import Path

import torch

from inspector import Inspector, SamplingParams
from inspector.events import Progress

MIB = 1 << 20


def resident(field: str) -> int:
    """VmRSS or VmHWM of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the kernel does not report {field}")


def peak_above_model(inspector: Inspector, tokens: int, continuations: int) -> tuple[int, dict]:
    """Peak bytes above the loaded model while a prompt of `tokens` is inspected, and the run's times."""
    ids = torch.randint(100, 40_000, (tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    params = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.02, repetition_penalty=1.1)
    inspector.inspect(prompt=ids[:64], params=params, continuations=min(continuations, 1), max_new_tokens=2, seed=0)
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    running = inspector.stream(prompt=ids, params=params, continuations=continuations, max_new_tokens=4, seed=0)
    while True:
        try:
            event = next(running)
        except StopIteration as end:
            return resident("VmHWM") - before, end.value.run["times"]
        if isinstance(event, Progress) and event.done % 1024 == 0:
            print(f"\r{event.stage}: {event.done}/{event.total}   ", end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--continuations", type=int, default=0)
    options = parser.parse_args()
    inspector = Inspector.load("embedded", dtype="float32")
    peak, times = peak_above_model(inspector, options.tokens, options.continuations)
    print(f"\r{options.tokens} tokens: peak {peak / 1e6:.0f} MB above the model; " + ", ".join(f"{k} {v:.1f}" for k, v in times.items()))


if __name__ == "__main__":
    main()
