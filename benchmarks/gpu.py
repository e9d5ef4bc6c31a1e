"""On a CUDA GPU: every Triton kernel against float64, then against the time that its bytes or its matmul need.

Takes under six minutes, most of it compiling. Prints a table, writes JSON if asked, and exits with 1 if a result is wrong;
a missed target is shown, not an error.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import inspector  # noqa: F401 - makes logit_kernels importable
from logit_kernels import reference

VOCABULARY, HIDDEN, TOP_N = 151936, 4096, 10
ROWS = (1024, 8)
FILTERS = {"min_p 0.02, top_k 50, top_p 0.95": (0.02, 50, 0.95), "top_p 0.95": (0.0, 0, 0.95)}
EXACT = {"finite", "own_rank", "top_ids", "has_nan", "min_p_value", "top_k_value", "top_p_value", "top_p_last_id", "kept"}


@dataclass(frozen=True)
class Timing:
    """milliseconds: median; floor: what the bytes (or the bare matmul) need; extra_mib: peak memory above the inputs."""

    name: str
    milliseconds: float
    floor: float
    extra_mib: float

    def __str__(self) -> str:
        share = f"{100 * self.floor / self.milliseconds:5.0f}%" if self.floor else "      "
        return f"{self.name:64} {self.milliseconds:9.3f} ms  floor {self.floor:8.3f} ms {share}  {self.extra_mib:8.1f} MiB"


def inputs(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    logits = (torch.randn(rows, VOCABULARY, generator=generator, device="cuda") * 3).to(dtype)
    return logits, torch.randint(0, VOCABULARY, (rows,), generator=generator, device="cuda")


def edits(rows: int, count: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(1))[:count].sort().values.cuda()
    return ids, torch.randn(rows, count, device="cuda", generator=torch.Generator("cuda").manual_seed(2)) * 3


def head_inputs(rows: int, dtype: torch.dtype, exact: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """exact: eighths and a short H, so that dot products have no rounding and ranks can be compared."""
    generator = torch.Generator("cuda").manual_seed(3)
    H = 64 if exact else HIDDEN

    def draw(count: int) -> torch.Tensor:
        if exact:
            return (torch.randint(-16, 17, (count, H), generator=generator, device="cuda") / 8).to(dtype)
        return (torch.randn(count, H, generator=generator, device="cuda") * H**-0.25).to(dtype)

    own = torch.randint(0, VOCABULARY, (rows,), generator=generator, device="cuda")
    return draw(rows), draw(VOCABULARY), own


def differences(name: str, got: object, expected: object) -> list[str]:
    """Ids, counts and thresholds exactly, values to 1e-5."""
    wrong = []
    for field in fields(expected):  # type: ignore[arg-type]
        a, b = getattr(got, field.name), getattr(expected, field.name)
        if b is None:
            continue
        same = torch.equal(a, b.to(a.dtype)) if field.name in EXACT else torch.allclose(a.double(), b.double(), 1e-5, 1e-5, equal_nan=True)
        if not same:
            worst = (a.double() - b.double()).abs().max().item()
            wrong.append(f"{name}: {field.name} differs in {int((a != b.to(a.dtype)).sum())} places, by {worst:.3g} at most")
    return wrong


def check_correctness() -> list[str]:
    from logit_kernels.triton_filters import filter_thresholds
    from logit_kernels.triton_fused_head import fused_head
    from logit_kernels.triton_row_statistics import row_statistics

    wrong: list[str] = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for rows, width in ((37, VOCABULARY), (3, VOCABULARY), (5, 50257), (2, 7)):
            whole, own = inputs(rows, dtype)
            logits, own = whole[:, :width], own % width
            if rows > 4:
                logits[1], logits[2] = -torch.inf, 1.5
                logits[1, 5] = 2.0
            name = f"{str(dtype)[6:]} [{rows}, {width}]"
            ids, values = edits(rows, 500)
            ids = ids[ids < width]
            values = values[:, : ids.shape[0]]
            raw, adjusted = row_statistics(logits, own, 100, temperature=0.8, edit_ids=ids, edit_values=values)
            wrong += differences(f"row_statistics {name}", raw, reference.row_statistics(logits.double(), own, 100))
            x = logits.float().clone()
            x[:, ids] = values
            x = x / torch.tensor(0.8, device="cuda")
            wrong += differences(f"row_statistics adjusted {name}", adjusted, reference.row_statistics(x.double(), own, 100))
            for label, settings in FILTERS.items():
                got = filter_thresholds(x, *settings, raw=logits, raw_maximum=raw.maximum, raw_log_sum=raw.log_sum)
                wrong += differences(f"filters {label} {name}", got, reference.filter_thresholds(x, *settings, raw=logits))
        for rows in (5, 130):
            hidden, weight, own = head_inputs(rows, dtype, exact=True)
            bias = {"bias_ids": torch.tensor([1, 4, 5]).cuda(), "bias_values": torch.tensor([-torch.inf, 2.5, 9.0]).cuda()}
            for options in ({}, {"temperature": 1.3, **bias}, {"scale": 0.5, "softcap": 30.0, "rounded": False}):
                arguments = (hidden, weight, own, TOP_N, torch.tensor([0, 17]).cuda())
                got, expected = fused_head(*arguments, **options), reference.fused_head(*arguments, **options)
                name = f"fused_head {str(dtype)[6:]} [{rows}, 64] {sorted(options)}"
                wrong += differences(f"{name} raw", got.raw, expected.raw) + differences(
                    f"{name} adjusted", got.adjusted, expected.adjusted
                )
    return wrong


def timed(name: str, function: Callable[[], object], floor: float = 0.0) -> Timing:
    from triton.testing import do_bench

    function()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function()
    torch.cuda.synchronize()
    extra = (torch.cuda.max_memory_allocated() - before) / 2**20
    timing = Timing(name, do_bench(function, warmup=50, rep=300, return_mode="median"), floor, extra)
    print(timing, flush=True)
    return timing


def copy_bandwidth() -> float:
    """Bytes a millisecond, read and written, of a 1 GiB copy."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / timed("copy of 1 GiB", lambda: target.copy_(source)).milliseconds


def torch_sequence(logits: torch.Tensor, own: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What scoring does without kernels."""
    logprobs = logits.float().log_softmax(dim=1)
    own_logprob = logprobs.gather(1, own[:, None])
    return own_logprob, (logprobs > own_logprob).sum(dim=1), *logprobs.topk(TOP_N, dim=1)


def time_rows(rows: int, dtype: torch.dtype, bandwidth: float) -> list[Timing]:
    from logit_kernels.triton_filters import filter_thresholds
    from logit_kernels.triton_row_statistics import row_statistics

    logits, own = inputs(rows, dtype)
    ids, values = edits(rows)
    floor = logits.numel() * logits.element_size() / bandwidth
    shape = f"[{rows}, {VOCABULARY}] {str(dtype)[6:]}"
    results = [
        timed(f"row_statistics {shape}", lambda: row_statistics(logits, own, TOP_N), floor),
        timed(f"row_statistics {shape} temperature", lambda: row_statistics(logits, own, TOP_N, temperature=0.8), floor),
        timed(
            f"row_statistics {shape} temperature, 500 edits",
            lambda: row_statistics(logits, own, TOP_N, temperature=0.8, edit_ids=ids, edit_values=values),
            floor,
        ),
        timed(f"row_statistics {shape} top 100", lambda: row_statistics(logits, own, 100), floor),
        timed(f"torch log_softmax, topk, rank {shape}", lambda: torch_sequence(logits, own), floor),
    ]
    for label, (min_p, top_k, top_p) in FILTERS.items():
        results.append(timed(f"filters {shape} {label}", lambda s=(min_p, top_k, top_p): filter_thresholds(logits, *s), floor))
    return results


def time_head(rows: int, dtype: torch.dtype) -> list[Timing]:
    from logit_kernels.triton_fused_head import fused_head
    from logit_kernels.triton_row_statistics import row_statistics

    hidden, weight, own = head_inputs(rows, dtype)
    none = torch.empty(0, dtype=torch.long, device="cuda")
    shape = f"[{rows}, {HIDDEN}] x {VOCABULARY} {str(dtype)[6:]}"
    bare = timed(f"matmul {shape}", lambda: hidden @ weight.T)
    floor = bare.milliseconds
    return [
        bare,
        timed(f"matmul, then row_statistics {shape}", lambda: row_statistics(hidden @ weight.T, own, TOP_N), floor),
        timed(f"fused_head {shape}", lambda: fused_head(hidden, weight, own, TOP_N, none), floor),
        timed(f"fused_head {shape} temperature", lambda: fused_head(hidden, weight, own, TOP_N, none, temperature=0.8), floor),
    ]


def targets(timings: list[Timing]) -> list[str]:
    by_name = {timing.name: timing for timing in timings}
    lines = []
    for dtype in ("bfloat16", "float32"):
        shape = f"[1024, {VOCABULARY}] {dtype}"
        ours, plain = by_name[f"row_statistics {shape}"], by_name[f"torch log_softmax, topk, rank {shape}"]
        share, gain = ours.floor / ours.milliseconds, plain.milliseconds / ours.milliseconds
        lines.append(f"{verdict(share >= 0.8)} row_statistics {shape}: {100 * share:.0f}% of copy bandwidth (target 80%)")
        lines.append(f"{verdict(gain >= 4)} row_statistics {shape}: {gain:.1f} x faster than torch (target 4)")
    fused = by_name[f"fused_head [1024, {HIDDEN}] x {VOCABULARY} bfloat16"]
    ratio = fused.milliseconds / fused.floor
    lines.append(f"{verdict(ratio <= 1.35)} fused_head: {ratio:.2f} x the bare matmul (target 1.35)")
    lines.append(f"{verdict(fused.extra_mib < 64)} fused_head: {fused.extra_mib:.0f} MiB of extra memory (target below 64)")
    return lines


def verdict(met: bool) -> str:
    return "met   " if met else "MISSED"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the timings to this file")
    parser.add_argument("--skip-timings", action="store_true", help="check the results only")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA GPU: nothing was measured")
        return 2
    # what is compared with must not be rounded to tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    start = time.monotonic()
    card = torch.cuda.get_device_name()
    print(f"{card}, torch {torch.__version__}")
    wrong = check_correctness()
    print("\n".join(wrong) or "all results equal the float64 reference", f"({time.monotonic() - start:.0f} s)", flush=True)
    if not arguments.skip_timings:
        bandwidth = copy_bandwidth()
        timings = [t for dtype in (torch.bfloat16, torch.float32) for rows in ROWS for t in time_rows(rows, dtype, bandwidth)]
        timings += [t for dtype in (torch.bfloat16, torch.float32) for rows in ROWS for t in time_head(rows, dtype)]
        print("\n".join(targets(timings)))
        if arguments.json:
            record = {"card": card, "copy_gb_per_s": bandwidth / 1e6, "timings": [asdict(t) for t in timings], "wrong": wrong}
            arguments.json.write_text(json.dumps(record, indent=1))
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
