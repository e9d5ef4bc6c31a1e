"""Row statistics in one pass over the logits, raw and adjusted at once (Triton).

The vocabulary of a row is split into *edited* columns (few, listed, shared by all rows) and the *rest*. The pass sums
the rest, at temperature 1 and at the given one; the finish adds the edited columns, with their raw values for the raw
statistics and with the edited values for the adjusted ones. Nothing is ever subtracted, so nothing cancels.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from logit_kernels.reference import RowStatistics
from logit_kernels.triton_common import (
    ABSENT,
    INTERPRETED,
    LAST,
    finite_shift,
    key_ids,
    key_values,
    largest_dividing_to,
    moved_sums,
    processors,
    ranked_keys,
)

SEGMENT = 128  # logits whose maximum is stored: the n best lie in the n segments with the best maxima
BLOCK_SEGMENTS = 16
INTERPRETED_SEGMENTS = 512
MOST_TOP = 100
PROGRAMS_A_PROCESSOR = 8
# left alone, the assembler squeezes the kernels with edits into fewer registers and spills a few bytes
MOST_REGISTERS = 192


@triton.jit
def _add_block(x, own, own_adjusted, rate, state, ADJUSTED: tl.constexpr, LANE: tl.constexpr):
    """x: [SEGMENTS, 128] float32, −inf where not present. Adds it to the running sums; returns them and the maxima."""
    maximum, total, weighted, finite, greater, total_adjusted, weighted_adjusted, greater_adjusted = state
    LANES: tl.constexpr = 128 // LANE
    SEGMENTS: tl.constexpr = x.shape[0]
    segment_maximum = tl.max(x, axis=1)  # [SEGMENTS]
    larger = tl.maximum(maximum, segment_maximum)
    shift = finite_shift(larger)
    d = x - shift[:, None]
    e = tl.exp(d)
    total, weighted = moved_sums(total, weighted, maximum[:, None], shift[:, None], 1.0)
    # the clamp keeps 0 · −inf out of the sum; a NaN passes through the other one
    total += tl.sum(tl.reshape(e, [SEGMENTS, LANES, LANE]), axis=2)
    weighted += tl.sum(tl.reshape(e * tl.maximum(d, -1e30), [SEGMENTS, LANES, LANE]), axis=2)
    finite += tl.sum(tl.reshape((x > float("-inf")).to(tl.int32), [SEGMENTS, LANES, LANE]), axis=2)
    greater += tl.sum(tl.reshape((x > own).to(tl.int32), [SEGMENTS, LANES, LANE]), axis=2)
    if ADJUSTED:
        cooled = d * rate
        e = tl.exp(cooled)
        total_adjusted, weighted_adjusted = moved_sums(total_adjusted, weighted_adjusted, maximum[:, None], shift[:, None], rate)
        total_adjusted += tl.sum(tl.reshape(e, [SEGMENTS, LANES, LANE]), axis=2)
        weighted_adjusted += tl.sum(tl.reshape(e * tl.maximum(cooled, -1e30), [SEGMENTS, LANES, LANE]), axis=2)
        greater_adjusted += tl.sum(tl.reshape((x > own_adjusted).to(tl.int32), [SEGMENTS, LANES, LANE]), axis=2)
    state = (larger, total, weighted, finite, greater, total_adjusted, weighted_adjusted, greater_adjusted)
    return state, segment_maximum


@triton.jit
def pass_kernel(
    logits, own_ids, own_slots, edited, edit_values, sums, counts, segment_maxima,
    V, row_stride, edit_stride, n_segments, split_segments, temperature, rate,
    ADJUSTED: tl.constexpr, EDITED: tl.constexpr, LANE: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """Program (row, split) -> sums [rows, splits, 5], counts [rows, splits, 3], segment_maxima [rows, n_segments]."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    own_id = tl.load(own_ids + row)
    own = tl.load(logits + row * row_stride + own_id).to(tl.float32)
    own_adjusted = own
    if EDITED:
        slot = tl.load(own_slots + row)
        own_adjusted = tl.where(slot >= 0, tl.load(edit_values + row * edit_stride + slot, mask=slot >= 0, other=0.0), own)
    if ADJUSTED:
        own_adjusted = largest_dividing_to(own_adjusted, temperature)

    zeros = tl.zeros([SEGMENTS, 128 // LANE], tl.float32)
    none = tl.zeros([SEGMENTS, 128 // LANE], tl.int32)
    state = (tl.full([SEGMENTS], float("-inf"), tl.float32), zeros, zeros, none, none, zeros, zeros, none)
    start = split * split_segments
    end = tl.minimum(start + split_segments, n_segments)
    whole_end = tl.minimum(end, V // 128)
    whole_end = start + tl.maximum(whole_end - start, 0) // SEGMENTS * SEGMENTS
    lanes = tl.arange(0, 128)[None, :]
    for first in range(start, whole_end, SEGMENTS):
        segments = first + tl.arange(0, SEGMENTS)
        ids = segments[:, None] * 128 + lanes
        x = tl.load(logits + row * row_stride + ids, eviction_policy="evict_first").to(tl.float32)
        if EDITED:
            x = tl.where(tl.load(edited + ids) == 0, x, float("-inf"))
        state, segment_maximum = _add_block(x, own, own_adjusted, rate, state, ADJUSTED, LANE)
        tl.store(segment_maxima + row * n_segments + segments, segment_maximum)
    for first in range(whole_end, end, SEGMENTS):
        segments = first + tl.arange(0, SEGMENTS)
        ids = segments[:, None] * 128 + lanes
        inside = (ids < V) & (segments < end)[:, None]
        x = tl.load(logits + row * row_stride + ids, mask=inside, other=float("-inf")).to(tl.float32)
        if EDITED:
            x = tl.where(tl.load(edited + ids, mask=inside, other=1) == 0, x, float("-inf"))
        state, segment_maximum = _add_block(x, own, own_adjusted, rate, state, ADJUSTED, LANE)
        tl.store(segment_maxima + row * n_segments + segments, segment_maximum, mask=segments < end)

    maximum, total, weighted, finite, greater, total_adjusted, weighted_adjusted, greater_adjusted = state
    largest = tl.max(maximum, axis=0)
    shift = finite_shift(largest)
    total, weighted = moved_sums(total, weighted, maximum[:, None], shift, 1.0)
    at = row * tl.num_programs(1) + split
    tl.store(sums + at * 5, largest)
    tl.store(sums + at * 5 + 1, tl.sum(tl.sum(total, axis=1), axis=0))
    tl.store(sums + at * 5 + 2, tl.sum(tl.sum(weighted, axis=1), axis=0))
    tl.store(counts + at * 3, tl.sum(tl.sum(finite, axis=1), axis=0))
    tl.store(counts + at * 3 + 1, tl.sum(tl.sum(greater, axis=1), axis=0))
    if ADJUSTED:
        total_adjusted, weighted_adjusted = moved_sums(total_adjusted, weighted_adjusted, maximum[:, None], shift, rate)
        tl.store(sums + at * 5 + 3, tl.sum(tl.sum(total_adjusted, axis=1), axis=0))
        tl.store(sums + at * 5 + 4, tl.sum(tl.sum(weighted_adjusted, axis=1), axis=0))
        tl.store(counts + at * 3 + 2, tl.sum(tl.sum(greater_adjusted, axis=1), axis=0))


@triton.jit
def _take_rest(heads, last, logits, edited, row_start, V, divisor, EDITED: tl.constexpr):
    """The best of the rest below `last`, and `heads` (one key a segment: its best value, then lower segment) without it.

    All that was taken before is at or above `last`, so one bound serves every segment. Reads one segment.
    """
    head = tl.max(heads, axis=0)
    segment = key_ids(head).to(tl.int32)
    ids = tl.where(head == ABSENT, V, segment * 128) + tl.arange(0, 128)
    present = ids < V
    x = tl.load(logits + row_start + ids, mask=present, other=float("-inf")).to(tl.float32)
    if EDITED:
        present &= tl.load(edited + ids, mask=present, other=1) == 0
    keys = ranked_keys(tl.div_rn(x, divisor), ids, present)
    taken = tl.max(tl.where(keys < last, keys, ABSENT), axis=0)
    after = tl.max(tl.where(keys < taken, keys, ABSENT), axis=0)
    after = tl.where(after == ABSENT, ABSENT, (after >> 32 << 32) | (head & 0xFFFFFFFF))
    return taken, tl.where(heads == head, after, heads)


@triton.jit
def _edit_keys(slots, n_edits, adjusted, divisor, logits, edit_ids, edit_values, row_start, edit_start):
    """Edited columns of one row, raw or adjusted -> their values before division, their keys, and which exist."""
    present = slots < n_edits
    ids = tl.load(edit_ids + slots, mask=present, other=0)
    raw = tl.load(logits + row_start + ids, mask=tl.where(adjusted, False, present), other=float("-inf")).to(tl.float32)
    new = tl.load(edit_values + edit_start + slots, mask=tl.where(adjusted, present, False), other=float("-inf"))
    x = tl.where(adjusted, new, raw)
    return x, ranked_keys(tl.div_rn(x, divisor), ids.to(tl.int32), present), present


@triton.jit
def finish_kernel(
    logits, own_ids, own_slots, edited, open_segments, edit_ids, edit_values, sums, counts, segment_maxima,
    floats, integers, flags, top_values, top_ids,
    V, row_stride, edit_stride, n_edits, n_segments, splits, temperature, rate, n,
    EDITED: tl.constexpr, SPLITS: tl.constexpr, HEADS: tl.constexpr, EDIT_HEADS: tl.constexpr,
):  # fmt: skip
    """Program (row, 0 for raw or 1 for adjusted) merges the splits, adds the edited columns and finds the top n.

    The n best are taken one by one: each segment of the rest and each 128 edits have a head, the best that is left.
    floats: [2, 4, rows], integers: [2, 2, rows], flags: [2, rows], top_*: [2, rows, n].
    """
    row = tl.program_id(0).to(tl.int64)
    which = tl.program_id(1)
    adjusted = which == 1
    rows = tl.num_programs(0)
    row_start = row * row_stride
    divisor = tl.where(adjusted, temperature, 1.0)
    rate = tl.where(adjusted, rate, 1.0)
    own_id = tl.load(own_ids + row)
    own = tl.load(logits + row_start + own_id).to(tl.float32)
    if EDITED:
        slot = tl.load(own_slots + row)
        is_edited = tl.where(adjusted, slot >= 0, False)
        own = tl.where(is_edited, tl.load(edit_values + row * edit_stride + slot, mask=is_edited, other=0.0), own)
    own = tl.div_rn(own, divisor)

    lane = tl.arange(0, SPLITS)
    at = row * splits + lane
    inside = lane < splits
    maxima = tl.load(sums + at * 5, mask=inside, other=float("-inf"))
    totals = tl.load(sums + at * 5 + 1 + 2 * which, mask=inside, other=0.0)
    weighteds = tl.load(sums + at * 5 + 2 + 2 * which, mask=inside, other=0.0)
    maximum = tl.max(maxima, axis=0)
    totals, weighteds = moved_sums(totals, weighteds, maxima, finite_shift(maximum), rate)
    total = tl.sum(totals, axis=0)
    weighted = tl.sum(weighteds, axis=0)
    finite = tl.sum(tl.load(counts + at * 3, mask=inside, other=0), axis=0)
    greater = tl.sum(tl.load(counts + at * 3 + 1 + which, mask=inside, other=0), axis=0)

    segments = tl.arange(0, HEADS)
    present = segments < n_segments
    value = tl.load(segment_maxima + row * n_segments + segments, mask=present, other=float("-inf"))
    if EDITED:
        # a segment of edited columns alone has the maximum −inf but no −inf token
        present &= tl.load(open_segments + segments, mask=present, other=0) != 0
    heads = ranked_keys(tl.div_rn(value, divisor), segments, present)
    rest_best, heads = _take_rest(heads, LAST, logits, edited, row_start, V, divisor, EDITED)
    edit_best = rest_best
    if EDITED:
        edit_start = row * edit_stride
        edit_heads = tl.full([EDIT_HEADS], ABSENT, tl.int64)
        for first in range(0, n_edits, 4 * 128):
            groups = first // 128 + tl.arange(0, 4)
            slots = groups[:, None] * 128 + tl.arange(0, 128)[None, :]
            x, keys, real = _edit_keys(slots, n_edits, adjusted, divisor, logits, edit_ids, edit_values, row_start, edit_start)
            group_best = tl.max(keys, axis=1)  # [4]
            here = tl.arange(0, EDIT_HEADS)[None, :] == groups[:, None]
            edit_heads = tl.maximum(edit_heads, tl.max(tl.where(here, group_best[:, None], ABSENT), axis=0))
            larger = tl.maximum(maximum, tl.max(tl.max(x, axis=1), axis=0))
            shift = finite_shift(larger)
            total, weighted = moved_sums(total, weighted, maximum, shift, rate)
            maximum = larger
            d = (x - shift) * rate
            e = tl.exp(d)
            total += tl.sum(tl.sum(e, axis=1), axis=0)
            weighted += tl.sum(tl.sum(e * tl.maximum(d, -1e30), axis=1), axis=0)
            finite += tl.sum(tl.sum((real & (x > float("-inf"))).to(tl.int32), axis=1), axis=0)
            greater += tl.sum(tl.sum((real & (tl.div_rn(x, divisor) > own)).to(tl.int32), axis=1), axis=0)
        edit_best = tl.max(edit_heads, axis=0)

    out = (which * rows + row) * n
    for place in range(n):
        best = tl.maximum(rest_best, edit_best)
        tl.store(top_values + out + place, key_values(best))
        tl.store(top_ids + out + place, tl.minimum(key_ids(best), V - 1))  # in range in a row of NaN, too
        if EDITED:
            if edit_best > rest_best:
                group = tl.max(tl.where(edit_heads == best, tl.arange(0, EDIT_HEADS), 0), axis=0)
                members = group * 128 + tl.arange(0, 128)
                _, group_keys, _ = _edit_keys(members, n_edits, adjusted, divisor, logits, edit_ids, edit_values, row_start, edit_start)
                after = tl.max(tl.where(group_keys < best, group_keys, ABSENT), axis=0)
                edit_heads = tl.where(edit_heads == best, after, edit_heads)
                edit_best = tl.max(edit_heads, axis=0)
            else:
                rest_best, heads = _take_rest(heads, rest_best, logits, edited, row_start, V, divisor, EDITED)
        else:
            rest_best, heads = _take_rest(heads, rest_best, logits, edited, row_start, V, divisor, EDITED)
            edit_best = rest_best

    nan = float("nan")
    log_sum = tl.where(finite > 0, tl.log(total), nan)
    quotient = tl.div_rn(maximum, divisor)
    at = which * 4 * rows + row
    tl.store(floats + at, quotient)
    tl.store(floats + at + rows, log_sum)
    tl.store(floats + at + 2 * rows, tl.where(finite > 0, tl.maximum(log_sum - weighted / total, 0.0), nan))
    tl.store(floats + at + 3 * rows, own)
    tl.store(integers + which * 2 * rows + row, finite.to(tl.int64))
    tl.store(integers + which * 2 * rows + rows + row, greater.to(tl.int64) + 1)
    # a NaN stays in the sum; +inf is the maximum
    tl.store(flags + which * rows + row, ((total != total) | (quotient == float("inf"))).to(tl.uint8))


def row_statistics(
    logits: Tensor,
    own_ids: Tensor,
    top_n: int,
    *,
    temperature: float = 1.0,
    edit_ids: Tensor | None = None,
    edit_values: Tensor | None = None,
) -> tuple[RowStatistics, RowStatistics]:
    """Statistics of the raw rows, and of the rows with columns `edit_ids` set to `edit_values`, divided by `temperature`.

    logits: [rows, V] float32, float16 or bfloat16, any row stride, columns adjacent. own_ids: [rows] int64. top_n: at most 100.
    edit_ids: [E] int64, ascending and distinct, the same for all rows; edit_values: [rows, E] float32, any row stride
    (0 for values shared by the rows), −inf where a token is cut. Both or neither.
    Returns (raw, adjusted), the same object twice if there is nothing to adjust.

    Reads the logits once; beside that, 128 logits for each of the top_n best segments of a row and E scattered ones.
    Sums are float32, spread over thousands of lanes; counts are int32, values and ids exact. Takes 4 bytes for 128
    logits (the segments' maxima) beside the result, and 2 bytes a token of the vocabulary where there are edits.
    """
    rows, V = logits.shape
    _check(logits, own_ids, top_n, temperature, edit_ids, edit_values)
    n_edits = 0 if edit_ids is None else edit_ids.shape[0]
    has_edits = n_edits > 0
    is_adjusted = has_edits or temperature != 1.0
    device = logits.device
    n = min(top_n, V)
    n_segments = triton.cdiv(V, SEGMENT)
    splits, split_segments = _splits(rows, n_segments, device)
    own_slots = edited = open_segments = None
    if has_edits:
        places = torch.searchsorted(edit_ids, own_ids).clamp_max_(edit_ids.shape[0] - 1)
        own_slots = torch.where(edit_ids[places] == own_ids, places, -1)
        edited = torch.ones(n_segments * SEGMENT, dtype=torch.int8, device=device)
        edited[:V].zero_().index_fill_(0, edit_ids, 1)
        open_segments = (edited.view(n_segments, SEGMENT) == 0).any(dim=1).to(torch.int8)
    edit_stride = edit_values.stride(0) if has_edits else 0
    sums = torch.empty(rows, splits, 5, dtype=torch.float32, device=device)
    counts = torch.empty(rows, splits, 3, dtype=torch.int32, device=device)
    segment_maxima = torch.empty(rows, n_segments, dtype=torch.float32, device=device)
    results = 2 if is_adjusted else 1
    floats = torch.empty(results, 4, rows, dtype=torch.float32, device=device)
    integers = torch.empty(results, 2, rows, dtype=torch.int64, device=device)
    flags = torch.empty(results, rows, dtype=torch.uint8, device=device)
    top_values = torch.empty(results, rows, n, dtype=torch.float32, device=device)
    top_ids = torch.empty(results, rows, n, dtype=torch.int64, device=device)
    if rows:
        lane = 16 // logits.element_size()  # what a thread loads at a time: 16 bytes
        pass_kernel[(rows, splits)](
            logits, own_ids, own_slots, edited, edit_values, sums, counts, segment_maxima,
            V, logits.stride(0), edit_stride, n_segments, split_segments, float(temperature), 1.0 / temperature,
            ADJUSTED=is_adjusted, EDITED=has_edits, LANE=lane, SEGMENTS=_block_segments(n_segments),
            num_warps=8, maxnreg=MOST_REGISTERS if is_adjusted else None,
        )  # fmt: skip
        finish_kernel[(rows, results)](
            logits, own_ids, own_slots, edited, open_segments, edit_ids, edit_values, sums, counts, segment_maxima,
            floats, integers, flags, top_values, top_ids,
            V, logits.stride(0), edit_stride, n_edits, n_segments, splits,
            float(temperature), 1.0 / temperature, n,
            EDITED=has_edits, SPLITS=triton.next_power_of_2(splits), HEADS=triton.next_power_of_2(n_segments),
            EDIT_HEADS=triton.next_power_of_2(triton.cdiv(n_edits, SEGMENT)) if has_edits else 1,
            num_warps=finish_warps(n_segments), maxnreg=MOST_REGISTERS,
        )  # fmt: skip
    made = [
        RowStatistics(
            maximum=floats[i, 0],
            log_sum=floats[i, 1],
            entropy=floats[i, 2],
            finite=integers[i, 0],
            own_value=floats[i, 3],
            own_rank=integers[i, 1],
            top_values=top_values[i],
            top_ids=top_ids[i],
            has_nan=flags[i].bool(),
        )
        for i in range(results)
    ]
    return made[0], made[-1]


def finish_warps(n_segments: int) -> int:
    """A thread holds at most 16 heads."""
    return 4 if n_segments <= 2048 else 8


def _block_segments(n_segments: int) -> int:
    """Segments a program takes at a time; the interpreter wants few large steps."""
    return min(INTERPRETED_SEGMENTS, triton.next_power_of_2(n_segments)) if INTERPRETED else BLOCK_SEGMENTS


def _splits(rows: int, n_segments: int, device: torch.device) -> tuple[int, int]:
    """How many programs share a row, and how many segments each takes (a whole number of blocks)."""
    block = _block_segments(n_segments)
    blocks = triton.cdiv(n_segments, block)
    wanted = triton.cdiv(PROGRAMS_A_PROCESSOR * processors(device), max(rows, 1))
    blocks_each = triton.cdiv(blocks, min(wanted, blocks))
    return triton.cdiv(blocks, blocks_each), blocks_each * block


def _check(logits: Tensor, own_ids: Tensor, top_n: int, temperature: float, edit_ids: Tensor | None, edit_values: Tensor | None) -> None:
    rows = logits.shape[0]
    if logits.dtype not in (torch.float32, torch.float16, torch.bfloat16) or logits.stride(1) != 1:
        raise ValueError(
            f"logits must be float32, float16 or bfloat16 with adjacent columns, got {logits.dtype}, strides {logits.stride()}"
        )
    if own_ids.shape != (rows,) or own_ids.dtype != torch.int64 or not own_ids.is_contiguous():
        raise ValueError(f"own_ids must be {rows} contiguous int64, got {tuple(own_ids.shape)} {own_ids.dtype}")
    if not 0 <= top_n <= MOST_TOP:
        raise ValueError(f"top_n must be between 0 and {MOST_TOP}, got {top_n}")
    if not temperature > 0.0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if (edit_ids is None) != (edit_values is None):
        raise ValueError("edit_ids and edit_values go together")
    if edit_ids is not None and edit_values is not None:
        shape = (rows, edit_ids.shape[0])
        if edit_ids.dtype != torch.int64 or not edit_ids.is_contiguous():
            raise ValueError(f"edit_ids must be contiguous int64, got {edit_ids.dtype}")
        if edit_values.shape != shape or edit_values.dtype != torch.float32 or (shape[1] > 1 and edit_values.stride(1) != 1):
            raise ValueError(
                f"edit_values must be {shape} float32 with adjacent columns, got {tuple(edit_values.shape)} {edit_values.dtype}"
            )
