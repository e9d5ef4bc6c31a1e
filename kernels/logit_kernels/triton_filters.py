"""Min-p, top-k and top-p thresholds of rows of logits without sorting them (Triton).

A threshold is searched by bisection over the float32 values in their order: at most 32 counts (top-k) or masses (top-p) of a row,
which stays in the second-level cache. Masses are summed in float32 to find the place and in float64 to settle it,
so that the result is that of a sort with float64 masses.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from logit_kernels.reference import FilterThresholds
from logit_kernels.triton_common import INTERPRETED, finite_shift, from_sortable, sortable

BLOCK = 1024
INTERPRETED_BLOCK = 65536
MOST_REGISTERS = 96  # left alone, the assembler takes fewer and spills a few bytes


@triton.jit
def _load(row, first, V, BLOCK: tl.constexpr):
    ids = first + tl.arange(0, BLOCK)
    return tl.load(row + ids, mask=ids < V, other=float("-inf")).to(tl.float32), ids


@triton.jit
def _maximum(row, V, BLOCK: tl.constexpr):
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    for first in range(0, V, BLOCK):
        x, _ = _load(row, first, V, BLOCK)
        largest = tl.maximum(largest, x)
    return tl.max(largest, axis=0)


@triton.jit
def _count_from(row, V, value, BLOCK: tl.constexpr):
    """How many logits above −inf are at least `value`."""
    counts = tl.zeros([BLOCK], tl.int32)
    for first in range(0, V, BLOCK):
        x, _ = _load(row, first, V, BLOCK)
        counts += ((x >= value) & (x > float("-inf"))).to(tl.int32)
    return tl.sum(counts, axis=0)


@triton.jit
def _least_from(row, V, value, BLOCK: tl.constexpr):
    """The smallest logit that is at least `value`."""
    least = tl.full([BLOCK], float("inf"), tl.float32)
    for first in range(0, V, BLOCK):
        x, _ = _load(row, first, V, BLOCK)
        least = tl.minimum(least, tl.where(x >= value, x, float("inf")))
    return tl.min(least, axis=0)


@triton.jit
def _mass_above(row, V, value, shift, dtype: tl.constexpr, BLOCK: tl.constexpr):
    """Σ exp(x − shift) over x > value, computed and summed in `dtype`."""
    sums = tl.zeros([BLOCK], dtype)
    for first in range(0, V, BLOCK):
        x, _ = _load(row, first, V, BLOCK)
        sums += tl.where(x > value, tl.exp(x.to(dtype) - shift.to(dtype)), 0.0)
    return tl.sum(sums, axis=0)


@triton.jit
def _kth_largest(row, V, lowest, largest, k, BLOCK: tl.constexpr):
    """The k-th largest of the values from `lowest` to `largest`, −inf if there are fewer."""
    low = sortable(lowest).to(tl.int64)  # as many as k are at or above it, always
    high = sortable(largest).to(tl.int64)
    count = _count_from(row, V, lowest, BLOCK)
    enough = count >= k
    while (low < high) & (count > k):
        middle = low + (high - low + 1) // 2
        here = _count_from(row, V, from_sortable(middle.to(tl.int32)), BLOCK)
        if here >= k:
            low = middle
            count = here
        else:
            high = middle - 1
    return tl.where(enough, _least_from(row, V, from_sortable(low.to(tl.int32)), BLOCK), float("-inf"))


@triton.jit
def _nucleus_value(row, V, lowest, largest, shift, bound, BLOCK: tl.constexpr):
    """The smallest value, from `lowest` up, whose mass above it is below `bound` (float64), and that mass."""
    bottom = sortable(lowest).to(tl.int64) - 1  # mass above: all of it, at least the bound
    top = sortable(largest).to(tl.int64)  # mass above: none
    low = bottom
    high = top
    while high - low > 1:
        middle = low + (high - low) // 2
        if _mass_above(row, V, from_sortable(middle.to(tl.int32)), shift, tl.float32, BLOCK).to(tl.float64) < bound:
            high = middle
        else:
            low = middle
    # the float32 sums may be off by a few places: open the bracket around them until float64 holds it, then close it
    step = high - low
    above = _mass_above(row, V, from_sortable(high.to(tl.int32)), shift, tl.float64, BLOCK)
    while above >= bound:
        low = high
        step = step * 2
        high = tl.minimum(high + step, top)
        above = _mass_above(row, V, from_sortable(high.to(tl.int32)), shift, tl.float64, BLOCK)
        above = tl.where(high == top, 0.0, above)
    step = high - low
    is_open = low > bottom
    while is_open:
        below = _mass_above(row, V, from_sortable(low.to(tl.int32)), shift, tl.float64, BLOCK)
        if below < bound:
            high = low
            above = below
            step = step * 2
            low = tl.maximum(low - step, bottom)
            is_open = low > bottom
        else:
            is_open = below < bound
    while high - low > 1:
        middle = low + (high - low) // 2
        here = _mass_above(row, V, from_sortable(middle.to(tl.int32)), shift, tl.float64, BLOCK)
        if here < bound:
            high = middle
            above = here
        else:
            low = middle
    return from_sortable(high.to(tl.int32)), above


@triton.jit
def _last_kept_id(row, V, value, above, weight, bound, BLOCK: tl.constexpr):
    """Of the tokens at `value`, in the order of their ids, the last with a mass before it below the bound."""
    ties = _count_from(row, V, value, BLOCK) - _count_from(row, V, from_sortable(sortable(value) + 1), BLOCK)
    kept = tl.minimum(tl.maximum(tl.ceil((bound - above) / weight), 1.0), ties.to(tl.float64))
    # the quotient is rounded: the sums decide
    kept = tl.where((kept > 1.0) & (above + (kept - 1.0) * weight >= bound), kept - 1.0, kept)
    kept = tl.where((kept < ties.to(tl.float64)) & (above + kept * weight < bound), kept + 1.0, kept).to(tl.int32)
    seen = 0
    last = tl.full([], -1, tl.int32)
    for first in range(0, V, BLOCK):
        x, ids = _load(row, first, V, BLOCK)
        tie = (x == value).to(tl.int32)
        place = seen + tl.cumsum(tie, axis=0)
        last = tl.maximum(last, tl.max(tl.where((tie > 0) & (place == kept), ids, -1), axis=0))
        seen += tl.sum(tie, axis=0)
    return last


@triton.jit
def filter_kernel(
    logits, raw, raw_maximum, raw_log_sum, floats, integers,
    V, row_stride, raw_stride, k, log_min_p: tl.float64, top_p: tl.float64,
    MIN_P: tl.constexpr, TOP_K: tl.constexpr, TOP_P: tl.constexpr, RAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row) -> floats [7, rows] (three thresholds, maximum, log sum, entropy, mass), integers [2, rows]."""
    number = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    row = logits + number * row_stride
    maximum = _maximum(row, V, BLOCK)
    shift = finite_shift(maximum)
    has_any = maximum > float("-inf")

    min_p_value = tl.full([], float("-inf"), tl.float32)
    if MIN_P:
        bound = maximum.to(tl.float64) + log_min_p
        min_p_value = bound.to(tl.float32)
        # up to the next float32, so that x ≥ the value is the same as x ≥ the bound
        min_p_value = tl.where(min_p_value.to(tl.float64) < bound, from_sortable(sortable(min_p_value) + 1), min_p_value)
    least_finite = tl.full([], -3.4028234663852886e38, tl.float32)
    lowest = tl.maximum(min_p_value, least_finite)

    top_k_value = tl.full([], float("-inf"), tl.float32)
    if TOP_K:
        if has_any:
            top_k_value = _kth_largest(row, V, lowest, maximum, k, BLOCK)
        lowest = tl.maximum(lowest, top_k_value)

    top_p_value = tl.full([], float("-inf"), tl.float32)
    last_id = tl.full([], 0, tl.int32) + (V - 1)
    if TOP_P:
        last_id = 0
        below = from_sortable(sortable(lowest) - 1)
        total = _mass_above(row, V, below, shift, tl.float64, BLOCK)
        if total > 0.0:  # neither an empty row nor one with a NaN
            mass_bound = total * top_p
            top_p_value, above = _nucleus_value(row, V, lowest, maximum, shift, mass_bound, BLOCK)
            weight = tl.exp(top_p_value.to(tl.float64) - shift.to(tl.float64))
            last_id = _last_kept_id(row, V, top_p_value, above, weight, mass_bound, BLOCK)

    counts = tl.zeros([BLOCK], tl.int32)
    totals = tl.zeros([BLOCK], tl.float32)
    weighteds = tl.zeros([BLOCK], tl.float32)
    masses = tl.zeros([BLOCK], tl.float32)
    for first in range(0, V, BLOCK):
        x, ids = _load(row, first, V, BLOCK)
        kept = (x >= lowest) & ((x > top_p_value) | ((x == top_p_value) & (ids <= last_id)))
        d = x - shift
        e = tl.where(kept, tl.exp(d), 0.0)
        counts += kept.to(tl.int32)
        totals += e
        weighteds += e * tl.maximum(d, -1e30)
        if RAW:
            y, _ = _load(raw + number * raw_stride, first, V, BLOCK)
            y = (y - tl.load(raw_maximum + number)) - tl.load(raw_log_sum + number)
            masses += tl.where(kept, tl.exp(y), 0.0)
    total = tl.sum(totals, axis=0)
    log_sum = tl.log(total)
    entropy = tl.maximum(log_sum - tl.sum(weighteds, axis=0) / total, 0.0)
    out = floats + number
    tl.store(out, min_p_value)
    tl.store(out + rows, top_k_value)
    tl.store(out + 2 * rows, top_p_value)
    tl.store(out + 3 * rows, maximum)
    tl.store(out + 4 * rows, log_sum)
    tl.store(out + 5 * rows, tl.where(has_any, entropy, float("nan")))
    tl.store(out + 6 * rows, tl.minimum(tl.sum(masses, axis=0), 1.0))
    tl.store(integers + number, last_id.to(tl.int64))
    tl.store(integers + rows + number, tl.sum(counts, axis=0).to(tl.int64))


def filter_thresholds(
    logits: Tensor,
    min_p: float,
    top_k: int,
    top_p: float,
    *,
    raw: Tensor | None = None,
    raw_maximum: Tensor | None = None,
    raw_log_sum: Tensor | None = None,
) -> FilterThresholds:
    """What min-p, top-k and top-p leave of each row: thresholds, kept count, sums over the survivors.

    logits: [rows, V] float32, float16 or bfloat16, adjusted and divided by the temperature, columns adjacent, any row stride.
    raw, with its row statistics raw_maximum and raw_log_sum [rows] float32: also gives the raw probability of the survivors.
    min_p 0, top_k 0 (or ≥ V) and top_p 1 are off. A row with a NaN or +inf gives values that mean nothing.

    Reads a row once for its maximum, once for the result and, where the filter is on, about 20 to 32 times for top-k and
    for top-p, from the cache where a row fits it. Thresholds are settled with float64 masses, as the reference's; the sums
    over the survivors are float32. Takes nothing beside the result.
    """
    rows, V = logits.shape
    for name, x in (("logits", logits), ("raw", raw)):
        if x is not None and (x.dtype not in (torch.float32, torch.float16, torch.bfloat16) or x.stride(1) != 1):
            raise ValueError(f"{name} must be float32, float16 or bfloat16 with adjacent columns, got {x.dtype}, strides {x.stride()}")
    if raw is not None and (raw.shape != logits.shape or raw_maximum is None or raw_log_sum is None):
        raise ValueError("raw must have the logits' shape and come with raw_maximum and raw_log_sum")
    if not (0.0 <= min_p <= 1.0 and top_k >= 0 and 0.0 < top_p <= 1.0):
        raise ValueError(f"min_p must be in [0, 1], top_k at least 0, top_p in (0, 1], got {min_p}, {top_k}, {top_p}")
    floats = torch.empty(7, rows, dtype=torch.float32, device=logits.device)
    integers = torch.empty(2, rows, dtype=torch.int64, device=logits.device)
    block = min(INTERPRETED_BLOCK, triton.next_power_of_2(V)) if INTERPRETED else BLOCK
    if rows:
        filter_kernel[(rows,)](
            logits, raw, raw_maximum, raw_log_sum, floats, integers,
            V, logits.stride(0), raw.stride(0) if raw is not None else 0, top_k, math.log(min_p) if min_p else 0.0, float(top_p),
            MIN_P=min_p > 0.0, TOP_K=0 < top_k < V, TOP_P=top_p < 1.0, RAW=raw is not None, BLOCK=block,
            num_warps=8, maxnreg=MOST_REGISTERS,
        )  # fmt: skip
    return FilterThresholds(
        min_p_value=floats[0],
        top_k_value=floats[1],
        top_p_value=floats[2],
        top_p_last_id=integers[0],
        kept=integers[1],
        maximum=floats[3],
        log_sum_kept=floats[4],
        entropy_kept=floats[5],
        kept_mass=floats[6] if raw is not None else None,
    )
