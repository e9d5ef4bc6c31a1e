"""Hidden states to statistics of their logits, tile by tile, the logits never stored (Triton).

The idea is that of cut cross-entropy (Wijmans et al. 2024): a tile of rows × vocabulary is multiplied, reduced and dropped.
Kept are sums and, for the top n, the maximum of each 16 neighbouring columns; the columns of the best segments are then computed
again, one dot product each. Filters (min-p, top-k, top-p) need a second look at all logits: they are not served here.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from logit_kernels.reference import FusedScores, RowStatistics
from logit_kernels.triton_common import (
    IN_INTERPRETER,
    INTERPRETED,
    accurate_tanh,
    finite_shift,
    largest_dividing_to,
    moved_sums,
    processors,
    rounded_to,
)
from logit_kernels.triton_row_statistics import MOST_TOP, row_statistics

SEGMENT = 16  # columns under one stored maximum: few, as a row computes n of these segments again
SCRATCH_BYTES = 40 << 20  # of stored maxima; more rows are done in parts
COLUMNS = 512 if INTERPRETED else 16  # gathered columns a program
GATHER_DEPTH = 256
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@triton.jit
def _head_values(x, scale, cap, SCALED: tl.constexpr, CAPPED: tl.constexpr, DTYPE: tl.constexpr):
    """Dot products, float32 -> logits, float32, each step rounded to DTYPE as a model that stores them does."""
    x = rounded_to(x, DTYPE)
    if SCALED:
        x = rounded_to(x * scale, DTYPE)
    if CAPPED:
        x = rounded_to(tl.div_rn(x, cap), DTYPE)
        x = rounded_to(accurate_tanh(x), DTYPE)
        x = rounded_to(x * cap, DTYPE)
    return x


@triton.jit
def gather_kernel(
    hidden, weight, ids, values, V, H, n_ids, hidden_stride, weight_stride, scale, cap,
    SCALED: tl.constexpr, CAPPED: tl.constexpr, ROUNDED: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Program (row, group) -> values [rows, n_ids]: logits of the row's ids [rows, n_ids], −inf outside 0…V − 1."""
    DTYPE: tl.constexpr = weight.dtype.element_ty if ROUNDED else tl.float32
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    listed = places < n_ids
    columns = tl.load(ids + row * n_ids + places, mask=listed, other=-1)
    real = (columns >= 0) & (columns < V)
    sums = tl.zeros([COLUMNS, BLOCK_H], tl.float32)
    for first in range(0, H, BLOCK_H):
        h = first + tl.arange(0, BLOCK_H)
        state = tl.load(hidden + row * hidden_stride + h, mask=h < H, other=0.0).to(tl.float32)
        inside = real[:, None] & (h < H)[None, :]
        sums += tl.load(weight + columns[:, None] * weight_stride + h[None, :], mask=inside, other=0.0).to(tl.float32) * state[None, :]
    x = _head_values(tl.sum(sums, axis=1), scale, cap, SCALED, CAPPED, DTYPE)
    tl.store(values + row * n_ids + places, tl.where(real, x, float("-inf")), mask=listed)


@triton.jit
def _add_tile(x, own, others, maximum, total, weighted, finite, greater, rate):
    """x: [rows, columns], −inf where not real; others: which columns are not the own token. -> the running values, updated."""
    larger = tl.maximum(maximum, tl.max(x, axis=1))
    shift = finite_shift(larger)
    total, weighted = moved_sums(total, weighted, maximum, shift, rate)
    d = (x - shift[:, None]) * rate
    e = tl.exp(d)
    total += tl.sum(e, axis=1)
    weighted += tl.sum(e * tl.maximum(d, -1e30), axis=1)
    finite += tl.sum((x > float("-inf")).to(tl.int32), axis=1)
    greater += tl.sum(((x > own[:, None]) & others).to(tl.int32), axis=1)
    return larger, total, weighted, finite, greater


@triton.jit
def tile_kernel(
    hidden, weight, bias, own_ids, own_values, sums, counts, segment_maxima,
    rows, V, H, hidden_stride, weight_stride, n_segments, tiles, tiles_each, scale, cap, temperature, rate,
    SCALED: tl.constexpr, CAPPED: tl.constexpr, ROUNDED: tl.constexpr, ADJUSTED: tl.constexpr, BIASED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_H: tl.constexpr, SEGMENT: tl.constexpr,
):  # fmt: skip
    """Program (rows, split of the vocabulary) -> sums [2, 3, rows, splits], counts [2, 2, rows, splits], and
    segment_maxima [1 or, with a bias, 2, rows, n_segments]; the first index is raw, adjusted."""
    DTYPE: tl.constexpr = weight.dtype.element_ty if ROUNDED else tl.float32
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    split = tl.program_id(1)
    splits = tl.num_programs(1)
    is_row = row < rows
    own_id = tl.load(own_ids + row, mask=is_row, other=0)
    own = tl.load(own_values + row, mask=is_row, other=0.0)
    own_adjusted = own
    if BIASED:
        own_adjusted += tl.load(bias + own_id)
    if ADJUSTED:
        own_adjusted = largest_dividing_to(own_adjusted, temperature)
    minus_infinity = tl.full([ROWS], float("-inf"), tl.float32)
    zeros = tl.zeros([ROWS], tl.float32)
    none = tl.zeros([ROWS], tl.int32)
    maximum, total, weighted, finite, greater = minus_infinity, zeros, zeros, none, none
    maximum_2, total_2, weighted_2, finite_2, greater_2 = minus_infinity, zeros, zeros, none, none
    lanes = tl.arange(0, BLOCK_H)
    hidden_rows = hidden + row[:, None] * hidden_stride + lanes[None, :]
    for tile in range(split * tiles_each, tl.minimum((split + 1) * tiles_each, tiles)):
        column = tile * COLUMNS + tl.arange(0, COLUMNS)
        is_column = column < V
        weight_columns = weight + column[None, :].to(tl.int64) * weight_stride + lanes[:, None]
        x = tl.zeros([ROWS, COLUMNS], tl.float32)
        for first in range(0, H, BLOCK_H):
            inside = lanes < H - first
            a = tl.load(hidden_rows + first, mask=is_row[:, None] & inside[None, :], other=0.0)
            b = tl.load(weight_columns + first, mask=is_column[None, :] & inside[:, None], other=0.0)
            if IN_INTERPRETER:
                # the interpreter would multiply the bits of bfloat16; in float32 the products are the same
                a, b = a.to(tl.float32), b.to(tl.float32)
            x = tl.dot(a, b, x, input_precision="ieee")
        x = _head_values(x, scale, cap, SCALED, CAPPED, DTYPE)
        x = tl.where(is_column[None, :], x, float("-inf"))
        others = column[None, :] != own_id[:, None]
        maximum, total, weighted, finite, greater = _add_tile(x, own, others, maximum, total, weighted, finite, greater, 1.0)
        segment = tile * (COLUMNS // SEGMENT) + tl.arange(0, COLUMNS // SEGMENT)
        at = segment_maxima + row[:, None] * n_segments + segment[None, :]
        is_segment = is_row[:, None] & (segment < n_segments)[None, :]
        tl.store(at, tl.max(tl.reshape(x, [ROWS, COLUMNS // SEGMENT, SEGMENT]), axis=2), mask=is_segment)
        if BIASED:
            x += tl.load(bias + column, mask=is_column, other=0.0)[None, :]
            at += tl.cast(rows, tl.int64) * n_segments
            tl.store(at, tl.max(tl.reshape(x, [ROWS, COLUMNS // SEGMENT, SEGMENT]), axis=2), mask=is_segment)
        if ADJUSTED:
            maximum_2, total_2, weighted_2, finite_2, greater_2 = _add_tile(
                x, own_adjusted, others, maximum_2, total_2, weighted_2, finite_2, greater_2, rate
            )
    size = tl.cast(rows, tl.int64) * splits
    at = row * splits + split
    tl.store(sums + at, maximum, mask=is_row)
    tl.store(sums + size + at, total, mask=is_row)
    tl.store(sums + 2 * size + at, weighted, mask=is_row)
    tl.store(counts + at, finite, mask=is_row)
    tl.store(counts + size + at, greater, mask=is_row)
    if ADJUSTED:
        tl.store(sums + 3 * size + at, maximum_2, mask=is_row)
        tl.store(sums + 4 * size + at, total_2, mask=is_row)
        tl.store(sums + 5 * size + at, weighted_2, mask=is_row)
        tl.store(counts + 2 * size + at, finite_2, mask=is_row)
        tl.store(counts + 3 * size + at, greater_2, mask=is_row)


def fused_head(
    hidden: Tensor,
    weight: Tensor,
    own_ids: Tensor,
    top_n: int,
    requested_ids: Tensor,
    *,
    softcap: float | None = None,
    scale: float = 1.0,
    temperature: float = 1.0,
    bias_ids: Tensor | None = None,
    bias_values: Tensor | None = None,
    rounded: bool = True,
) -> FusedScores:
    """Statistics of the logits `hidden @ weight.T`, times `scale`, then soft-capped; and of (logits + bias) / temperature.

    hidden: [rows, H], weight: [V, H], both float32, float16 or bfloat16, adjacent in H. own_ids: [rows] int64.
    top_n: at most 100. requested_ids: [R] int64. bias_ids: [E] int64, distinct, bias_values: [E] float32, −inf for a token
    that is cut; both or neither. rounded: whether logits are rounded to the weight's dtype before anything is counted, as
    a model in that dtype does that stores them (each of scale and soft-cap, too); in float32 it makes no difference.

    Dot products and sums accumulate in float32 (float32 inputs are multiplied in float32, not tf32). The own token's, the
    requested and the top logits are dot products of their own: they may differ from the tile's in the order of the sums,
    1e-6 of the value or one step of the rounding; so ranks leave the own id out of the count instead of comparing it with itself.

    Reads the weight once per 64 rows (per 16 where there are no more), mostly cached, and 16 top_n + R + 1 of its rows for each row.
    Takes V / 4 bytes a row (V / 2 with a bias), at most 40 MiB, and V floats for a bias, beside the result.
    """
    _check(hidden, weight, own_ids, top_n, temperature, requested_ids, bias_ids, bias_values)
    V = weight.shape[0]
    bias = None
    if bias_ids is not None and bias_values is not None and bias_ids.shape[0]:
        bias = torch.zeros(V, dtype=torch.float32, device=weight.device).index_copy_(0, bias_ids, bias_values)
    head = _Head(weight, scale, softcap or 0.0, rounded)
    row_bytes = 4 * triton.cdiv(V, SEGMENT) * (1 if bias is None else 2)
    at_once = max(128, SCRATCH_BYTES // row_bytes // 128 * 128)
    parts = [
        _fused_rows(hidden[start : start + at_once], head, own_ids[start : start + at_once], top_n, requested_ids, temperature, bias)
        for start in range(0, max(hidden.shape[0], 1), at_once)
    ]
    return FusedScores.concatenate(parts)


def logits_at(
    hidden: Tensor, weight: Tensor, ids: Tensor, *, softcap: float | None = None, scale: float = 1.0, rounded: bool = True
) -> Tensor:
    """The logits of each row's `ids` [rows, C] int64 -> [rows, C] float32, −inf where an id is none; see fused_head."""
    return _Head(weight, scale, softcap or 0.0, rounded).gather(hidden, ids)


class _Head:
    """The weight and what follows the product, as the kernels take it."""

    def __init__(self, weight: Tensor, scale: float, softcap: float, rounded: bool) -> None:
        self.weight = weight
        self.scale, self.softcap = float(scale), float(softcap)
        self.flags = {"SCALED": scale != 1.0, "CAPPED": softcap > 0.0, "ROUNDED": rounded and weight.dtype != torch.float32}

    def gather(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """hidden: [rows, H], ids: [rows, C] -> their logits [rows, C] float32, −inf where an id is none."""
        ids = ids.contiguous()
        values = torch.empty(ids.shape, dtype=torch.float32, device=ids.device)
        if ids.numel():
            V, H = self.weight.shape
            gather_kernel[(ids.shape[0], triton.cdiv(ids.shape[1], COLUMNS))](
                hidden, self.weight, ids, values, V, H, ids.shape[1], hidden.stride(0), self.weight.stride(0), self.scale, self.softcap,
                **self.flags, COLUMNS=COLUMNS, BLOCK_H=GATHER_DEPTH, num_warps=4,
            )  # fmt: skip
        return values


def tile_shape(rows: int, dtype: torch.dtype) -> dict[str, int]:
    """Rows, columns and depth of a tile, warps and stages: the largest that compile without a spill."""
    is_single = dtype == torch.float32  # multiplied outside the matrix unit, so its registers hold the operands, too
    if rows <= 16 and is_single:
        return {"ROWS": 16, "COLUMNS": 64, "BLOCK_H": 32, "num_warps": 8, "num_stages": 2}
    if rows <= 16:
        return {"ROWS": 16, "COLUMNS": 128, "BLOCK_H": 64, "num_warps": 4, "num_stages": 3}
    if is_single:
        return {"ROWS": 64, "COLUMNS": 64, "BLOCK_H": 16, "num_warps": 8, "num_stages": 3, "maxnreg": 224}
    return {"ROWS": 64, "COLUMNS": 128, "BLOCK_H": 64, "num_warps": 8, "num_stages": 3}


def _fused_rows(
    hidden: Tensor, head: _Head, own_ids: Tensor, top_n: int, requested_ids: Tensor, temperature: float, bias: Tensor | None
) -> FusedScores:
    rows, (V, H) = hidden.shape[0], head.weight.shape
    device = hidden.device
    n = min(top_n, V)
    is_adjusted = bias is not None or temperature != 1.0
    wanted = head.gather(hidden, torch.cat([own_ids[:, None], requested_ids.expand(rows, -1)], dim=1))
    own_values = wanted[:, 0].contiguous()
    shape = tile_shape(rows, hidden.dtype)
    if INTERPRETED:
        shape |= {"COLUMNS": 4096, "BLOCK_H": triton.next_power_of_2(H)}
    tiles, row_blocks = triton.cdiv(V, shape["COLUMNS"]), triton.cdiv(rows, shape["ROWS"])
    tiles_each = triton.cdiv(tiles, min(tiles, max(1, 2 * processors(device) // max(row_blocks, 1))))
    splits = triton.cdiv(tiles, tiles_each)
    n_segments = triton.cdiv(V, SEGMENT)
    sums = torch.empty(2, 3, rows, splits, dtype=torch.float32, device=device)
    counts = torch.empty(2, 2, rows, splits, dtype=torch.int32, device=device)
    segment_maxima = torch.empty(1 if bias is None else 2, rows, n_segments, dtype=torch.float32, device=device)
    if rows:
        tile_kernel[(row_blocks, splits)](
            hidden, head.weight, bias, own_ids, own_values, sums, counts, segment_maxima,
            rows, V, H, hidden.stride(0), head.weight.stride(0), n_segments, tiles, tiles_each,
            head.scale, head.softcap, float(temperature), 1.0 / temperature,
            **head.flags, ADJUSTED=is_adjusted, BIASED=bias is not None, SEGMENT=SEGMENT, **shape,
        )  # fmt: skip
    raw = _statistics(sums[0], counts[0], 1.0, own_values, *_top(hidden, head, segment_maxima[0], n, 1.0, None))
    adjusted = raw
    if is_adjusted:
        own_adjusted = own_values if bias is None else own_values + bias[own_ids]
        top = _top(hidden, head, segment_maxima[-1], n, temperature, bias)
        adjusted = _statistics(sums[1], counts[1], temperature, own_adjusted, *top)
    return FusedScores(raw, adjusted, wanted[:, 1:])


def _top(hidden: Tensor, head: _Head, segment_maxima: Tensor, n: int, temperature: float, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values and ids [rows, n] of the best columns: they lie in the n segments with the best maxima."""
    rows, n_segments = segment_maxima.shape
    first = torch.zeros(rows, dtype=torch.long, device=hidden.device)
    _, best = row_statistics(segment_maxima, first, min(n, n_segments), temperature=temperature)
    segments = best.top_ids.sort(dim=1).values  # so that candidates stand in the order of their ids
    ids = (segments[:, :, None] * SEGMENT + torch.arange(SEGMENT, device=hidden.device)).flatten(1)
    values = head.gather(hidden, ids)
    if bias is not None:
        values += bias[ids.clamp(0, bias.shape[0] - 1)]
    if n == 0:
        return values[:, :0], ids[:, :0]
    _, best = row_statistics(values, first, n, temperature=temperature)
    return best.top_values, ids.gather(1, best.top_ids)


def _statistics(sums: Tensor, counts: Tensor, temperature: float, own: Tensor, top_values: Tensor, top_ids: Tensor) -> RowStatistics:
    """sums: [3, rows, splits], counts: [2, rows, splits], of values not yet divided by the temperature."""
    maxima, totals, weighteds = sums
    maximum = maxima.amax(dim=1)
    # a split with nothing above −inf has no sums
    moved = torch.where(maxima == -torch.inf, 0.0, maxima - maximum[:, None]) / temperature
    scale = moved.exp()
    total = (totals * scale).sum(dim=1)
    weighted = torch.where(scale > 0, scale * (weighteds + moved * totals), 0.0).sum(dim=1)
    finite = counts[0].sum(dim=1)
    log_sum = total.log().masked_fill(finite == 0, torch.nan)
    divisor = torch.tensor(temperature, dtype=torch.float32, device=own.device)
    return RowStatistics(
        maximum=maximum / divisor,
        log_sum=log_sum,
        entropy=(log_sum - weighted / total).clamp_min(0.0),
        finite=finite,
        own_value=own / divisor,
        own_rank=1 + counts[1].sum(dim=1),
        top_values=top_values,
        top_ids=top_ids,
        has_nan=total.isnan() | maximum.isposinf(),
    )


def _check(
    hidden: Tensor,
    weight: Tensor,
    own_ids: Tensor,
    top_n: int,
    temperature: float,
    requested_ids: Tensor,
    bias_ids: Tensor | None,
    bias_values: Tensor | None,
) -> None:
    for name, x in (("hidden", hidden), ("weight", weight)):
        if x.dtype not in DTYPES or x.dim() != 2 or x.stride(1) != 1:
            raise ValueError(f"{name} must be a float32, float16 or bfloat16 matrix, adjacent in H, got {x.dtype}, strides {x.stride()}")
    if hidden.shape[1] != weight.shape[1] or hidden.dtype != weight.dtype:
        raise ValueError(f"hidden {tuple(hidden.shape)} {hidden.dtype} and weight {tuple(weight.shape)} {weight.dtype} do not go together")
    if own_ids.shape != (hidden.shape[0],) or own_ids.dtype != torch.int64 or not own_ids.is_contiguous():
        raise ValueError(f"own_ids must be {hidden.shape[0]} contiguous int64, got {tuple(own_ids.shape)} {own_ids.dtype}")
    if requested_ids.dim() != 1 or requested_ids.dtype != torch.int64:
        raise ValueError(f"requested_ids must be a list of int64, got {tuple(requested_ids.shape)} {requested_ids.dtype}")
    if not 0 <= top_n <= MOST_TOP or not temperature > 0.0:
        raise ValueError(f"top_n must be between 0 and {MOST_TOP} and temperature above 0, got {top_n} and {temperature}")
    if (bias_ids is None) != (bias_values is None):
        raise ValueError("bias_ids and bias_values go together")
