"""The fast path on a CPU: one visit to each row while it lies in the core's cache, all cores, no sort of the vocabulary.

Compiled by numba on first use and kept in its cache. Every sum is made of float32 partial sums of 128 numbers, added up
in float64; the survivors of a filter are few, and their sums are float64 throughout.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit
from torch import Tensor

from kernels.interface import Adjustment, FilterCodes, RowScores

SEGMENT = 128  # numbers a partial sum
MASS_STEPS = 400  # of 1/16 nat: what lies deeper than 25 nats below the maximum is one step
# No `ninf`: a cut token's −inf must stay what it is. NaN rows are found by their bits before anything is computed.
FAST = {"nnan", "nsz", "arcp", "contract", "afn", "reassoc"}

# columns of the float and integer outputs, in this order
FLOATS = ("raw_logit", "raw_logprob", "processed_logit", "processed_logprob", "raw_entropy", "processed_entropy", "kept_mass")
INTEGERS = ("raw_rank", "processed_rank", "kept_tokens", "cut_by", "bad")


def score_rows(logits: Tensor, own_ids: Tensor, requested_ids: Tensor, top_n: int, adjustment: Adjustment) -> RowScores:
    """logits: [rows, V] float32, bfloat16 or float16 on the CPU; own_ids: [rows], requested_ids: [R] int64 -> RowScores.

    bfloat16 is widened a row at a time. Memory beside the logits: two rows a thread and the outputs.
    """
    rows, vocab = logits.shape
    if logits.dtype == torch.float16:
        logits = logits.float()
    is_bfloat16 = logits.dtype == torch.bfloat16
    block = logits.contiguous()
    bits = block.view(torch.int16).numpy() if is_bfloat16 else np.empty((1, 1), np.int16)
    values = np.empty((1, 1), np.float32) if is_bfloat16 else block.numpy()
    n = min(top_n, vocab)
    width = 2 * n + requested_ids.shape[0] + 1
    floats = np.empty((rows, len(FLOATS)), np.float32)
    integers = np.empty((rows, len(INTEGERS)), np.int64)
    candidate_ids = np.full((rows, width), -1, np.int64)
    candidate_floats = np.full((4, rows, width), np.nan, np.float32)
    candidate_integers = np.full((3, rows, width), -1, np.int64)
    a = adjustment
    codes = a.codes or FilterCodes(0, 0, 0)
    k = 0 if a.top_k >= vocab else a.top_k
    min_p_drop = math.log(a.min_p) if a.min_p > 0 else -math.inf

    def score(first: int, last: int) -> None:
        _score_block(
            values, bits, is_bfloat16, vocab, first, last, own_ids.numpy(), requested_ids.numpy(), n,
            a.edit_ids.numpy(), a.edit_values.contiguous().numpy(), a.edit_codes.contiguous().numpy(), a.outside_code,
            np.float32(a.temperature), min_p_drop, k, float(a.top_p), np.array([codes.min_p, codes.top_k, codes.top_p]),
            not a.is_neutral, floats, integers, candidate_ids, candidate_floats, candidate_integers,
        )  # fmt: skip

    _in_threads(score, rows)
    columns = {name: torch.from_numpy(floats[:, i].copy()) for i, name in enumerate(FLOATS)}
    columns |= {name: torch.from_numpy(integers[:, i].copy()) for i, name in enumerate(INTEGERS)}
    columns["candidate_ids"] = torch.from_numpy(candidate_ids)
    for i, name in enumerate(FLOATS[:4]):
        columns["candidate_" + name] = torch.from_numpy(candidate_floats[i])
    for i, name in enumerate(("raw_rank", "processed_rank", "cut_by")):
        columns["candidate_" + name] = torch.from_numpy(candidate_integers[i])
    columns["candidate_cut_by"].clamp_(min=0)
    return RowScores(**columns)


def _in_threads(work: Callable[[int, int], None], rows: int) -> None:
    """Rows in equal parts over torch's number of threads. Threads of our own, since numba's pools forbid two users at once."""
    threads = min(torch.get_num_threads(), rows)
    borders = [rows * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, borders[:-1], borders[1:]))


@njit(cache=True, nogil=True)
def _score_block(values, bits, is_bfloat16, vocab, first, last, own_ids, requested, n, edit_ids, edit_values, edit_codes, outside_code,
                 temperature, min_p_drop, top_k, top_p, codes, is_adjusted,
                 floats, integers, ids_out, floats_out, integers_out):  # fmt: skip
    x = np.empty(vocab, np.float32)
    y = np.empty(vocab, np.float32)
    maxima = np.empty((vocab + SEGMENT - 1) // SEGMENT, np.float32)
    gathered = np.empty(vocab, np.int64)
    for row in range(first, last):
        if is_bfloat16:
            _widen(bits[row], x)
        else:
            x[:] = values[row]
        _score_row(x, y, maxima, gathered, own_ids[row], requested, n, edit_ids, edit_values[row], edit_codes[row], outside_code,
                   temperature, min_p_drop, top_k, top_p, codes, is_adjusted,
                   floats[row], integers[row], ids_out[row], floats_out[:, row], integers_out[:, row])  # fmt: skip


@njit(cache=True, nogil=True)
def _score_row(x, y, maxima, gathered, own, requested, n, edit_ids, edit_values, edit_codes, outside_code,
               temperature, min_p_drop, top_k, top_p, codes, is_adjusted,
               floats, integers, ids, candidate_floats, candidate_integers):  # fmt: skip
    floats[:] = np.nan
    integers[:] = -1
    if _is_bad(x.view(np.int32)):
        integers[4] = 1
        return
    integers[4] = 0
    largest = _segment_maxima(x, maxima)
    if largest == -np.inf:
        integers[2] = 0
        return
    total, weighted = _sums(x, largest)
    log_sum = math.log(total)
    count = _top_ids(x, maxima, n, gathered, ids)
    best = x[ids[:count]]
    # thresholds of the filters, in adjusted values; a token survives at or above all of them
    min_p_value, top_k_value, top_p_value, top_p_last = -np.inf, -np.inf, -np.inf, np.int64(len(x))
    after_largest, after_log_sum, after_entropy = largest, log_sum, max(log_sum - weighted / total, 0.0)
    kept, mass = _count_finite(x), 1.0
    raw_entropy = after_entropy
    after_best = best
    if is_adjusted:
        _adjust(x, y, edit_ids, edit_values, outside_code, temperature)
        after_largest = _segment_maxima(y, maxima)
        if after_largest == -np.inf:
            integers[2] = 0
            return
        more = _top_ids(y, maxima, n, gathered, ids[count:])
        after_best = y[ids[count : count + more]]
        count += more
        if min_p_drop > -np.inf:
            min_p_value = np.float64(after_largest) + min_p_drop
        if top_k > 0:
            top_k_value = np.float64(_kth_largest(y, maxima, top_k, gathered))
        floor = max(min_p_value, top_k_value)
        if floor > -np.inf or top_p < 1.0:
            found = _survivors(y, maxima, floor, top_p, after_largest, gathered)
            order = np.argsort(-y[gathered[:found]], kind="mergesort")
            kept, top_p_value, after_log_sum, after_entropy, mass = _nucleus(
                x, y, gathered, order, found, floor, top_p, largest, after_largest
            )
            if top_p < 1.0:
                top_p_last = gathered[order[kept - 1]]
        else:
            after_total, after_weighted = _sums(y, after_largest)
            after_log_sum = math.log(after_total)
            after_entropy = max(after_log_sum - after_weighted / after_total, 0.0)
            kept, mass = _kept_mass(x, y, largest)
        mass = min(mass / total, 1.0)
    for i in range(requested.shape[0]):
        ids[count] = requested[i]
        count += 1
    ids[count] = own
    count += 1
    _drop_repeated(ids, count)
    for i in range(count):
        token = ids[i]
        if token < 0:
            continue
        raw = x[token]
        processed = y[token] if is_adjusted else raw
        code = 0
        if is_adjusted:
            code = _cut_code(token, processed, edit_ids, edit_codes, outside_code, codes, min_p_value, top_k_value, top_p_value, top_p_last)
        candidate_floats[0, i] = raw
        candidate_floats[1, i] = min((raw - largest) - np.float32(log_sum), np.float32(0.0))
        candidate_integers[0, i] = _rank(x, raw, best)
        candidate_integers[2, i] = code
        if code > 0 or processed == -np.inf:
            candidate_floats[2, i] = -np.inf
            candidate_floats[3, i] = -np.inf
        else:
            candidate_floats[2, i] = processed
            candidate_floats[3, i] = min((processed - after_largest) - np.float32(after_log_sum), np.float32(0.0))
            candidate_integers[1, i] = _rank(y, processed, after_best) if is_adjusted else candidate_integers[0, i]
    at = _find(ids, count, own)
    for i in range(4):
        floats[i] = candidate_floats[i, at]
    floats[4], floats[5], floats[6] = raw_entropy, after_entropy, mass
    integers[0], integers[1], integers[2], integers[3] = (
        candidate_integers[0, at],
        candidate_integers[1, at],
        kept,
        candidate_integers[2, at],
    )


@njit(cache=True, nogil=True)
def _widen(bits, x):
    """bfloat16 is the upper half of a float32."""
    wide = x.view(np.int32)
    for i in range(len(bits)):
        wide[i] = np.int32(bits[i]) << 16


@njit(cache=True, nogil=True)
def _is_bad(bits):
    """Whether a float32 row holds NaN or +inf, by its bits."""
    found = 0
    for i in range(len(bits)):
        b = bits[i]
        found += np.int32(b >= 0x7F800000) + np.int32((b & 0x7FFFFFFF) > 0x7F800000)
    return found > 0


@njit(cache=True, nogil=True, fastmath=FAST)
def _segment_maxima(x, maxima):
    largest = np.float32(-np.inf)
    for s in range(len(maxima)):
        part = x[s * SEGMENT : (s + 1) * SEGMENT]
        m = np.float32(-np.inf)
        for i in range(len(part)):
            m = max(m, part[i])
        maxima[s] = m
        largest = max(largest, m)
    return largest


@njit(cache=True, nogil=True, fastmath=FAST, inline="always")
def _exp(d):
    """e**d for d ≤ 0 in float32, relative error below 2e-7 (Cephes expf); 0 below −87."""
    d = max(d, np.float32(-104.0))
    k = math.floor(d * np.float32(1.44269504088896341) + np.float32(0.5))
    r = d - k * np.float32(0.693359375) + k * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    exponent = max(np.int32(k) + np.int32(127), np.int32(0))
    return p * np.int32(exponent << np.int32(23)).view(np.float32)


@njit(cache=True, nogil=True, fastmath=FAST)
def _sums(x, largest):
    """Σ eᵈ and Σ d·eᵈ with d = x − largest; a −inf adds nothing to either."""
    total, weighted = 0.0, 0.0
    for start in range(0, len(x), SEGMENT):
        part = x[start : start + SEGMENT]
        a, b = np.float32(0.0), np.float32(0.0)
        for i in range(len(part)):
            d = max(part[i] - largest, np.float32(-104.0))
            e = _exp(d)
            a += e
            b += d * e
        total += a
        weighted += b
    return total, weighted


@njit(cache=True, nogil=True, fastmath=FAST)
def _count_greater(x, value):
    count = np.int32(0)
    for i in range(len(x)):
        count += np.int32(x[i] > value)
    return np.int64(count)


@njit(cache=True, nogil=True)
def _rank(x, value, best):
    """1 + the number of greater values in the row; they are all among the best ones if `value` reaches the last of these."""
    if len(best) == 0 or value < best[-1]:
        return 1 + _count_greater(x, value)
    return 1 + _count_greater(best, value)


@njit(cache=True, nogil=True, fastmath=FAST)
def _count_finite(x):
    return _count_greater(x, np.float32(-np.inf))


@njit(cache=True, nogil=True)
def _adjust(x, y, edit_ids, edit_values, outside_code, temperature):
    """y: x with its edited entries, divided by the temperature; nothing but them where only listed tokens are allowed."""
    if outside_code > 0:
        y[:] = -np.inf
    else:
        for i in range(len(x)):
            y[i] = x[i] / temperature
    for e in range(len(edit_ids)):
        y[edit_ids[e]] = edit_values[e] / temperature


@njit(cache=True, nogil=True)
def _floor_of_best(maxima, k):
    """A value that at least k tokens reach: the k-th best of the segments' maxima; −inf if there are fewer segments."""
    if k > len(maxima):
        return np.float32(-np.inf)
    return np.partition(maxima, len(maxima) - k)[len(maxima) - k]


@njit(cache=True, nogil=True)
def _gather(x, maxima, floor, gathered):
    """Ids of the finite values ≥ floor, ascending; only segments whose maximum reaches it are looked at."""
    count = 0
    for s in range(len(maxima)):
        if maxima[s] >= floor:
            for i in range(s * SEGMENT, min((s + 1) * SEGMENT, len(x))):
                if x[i] >= floor and x[i] > -np.inf:
                    gathered[count] = i
                    count += 1
    return count


@njit(cache=True, nogil=True)
def _top_ids(x, maxima, n, gathered, ids):
    """The n best finite values' ids into `ids`, best first, ties by lower id; returns how many there are."""
    if n == 0:
        return 0
    found = _gather(x, maxima, _floor_of_best(maxima, n), gathered)
    size = 0
    for g in range(found):
        token = gathered[g]
        value = x[token]
        if size == n and value <= x[ids[n - 1]]:
            continue
        at = size if size < n else n - 1
        while at > 0 and x[ids[at - 1]] < value:
            ids[at] = ids[at - 1]
            at -= 1
        ids[at] = token
        size = min(size + 1, n)
    return size


@njit(cache=True, nogil=True)
def _kth_largest(y, maxima, k, gathered):
    found = _gather(y, maxima, _floor_of_best(maxima, k), gathered)
    if found < k:
        return np.float32(-np.inf)  # fewer than k tokens are left: all of them stay
    values = y[gathered[:found]]
    return np.partition(values, found - k)[found - k]


@njit(cache=True, nogil=True)
def _survivors(y, maxima, floor, top_p, largest, gathered):
    """Ids, ascending, of a set that holds every survivor: all at or above `floor`, or the best ones whose mass is enough.

    Without a floor, a histogram of the mass over steps of 1/16 nat below the maximum shows how far down p reaches, with
    room for rounding.
    """
    if floor > -np.inf:
        return _gather(y, maxima, floor, gathered)
    steps = np.zeros(MASS_STEPS + 1, np.float64)
    for i in range(len(y)):
        d = max(y[i] - largest, np.float32(-104.0))
        steps[min(int(d * np.float32(-16.0)), MASS_STEPS)] += _exp(d)
    wanted, mass, step = (top_p + 1e-5) * steps.sum(), 0.0, 0
    while step < MASS_STEPS and mass < wanted:
        mass += steps[step]
        step += 1
    if mass < wanted:
        return _gather(y, maxima, -np.inf, gathered)
    return _gather(y, maxima, np.float64(largest) - (step + 1) / 16, gathered)


@njit(cache=True, nogil=True)
def _nucleus(x, y, gathered, order, found, floor, top_p, raw_largest, largest):
    """The survivors of top-p among the gathered tokens, and their sums in float64.

    order: the gathered tokens best first. -> number kept, value of the last one, log-sum, entropy, Σ e^(raw − raw max).
    """
    top = np.float64(largest)
    if floor > -np.inf:
        total = 0.0
        for g in range(found):
            total += math.exp(np.float64(y[gathered[g]]) - top)
        kept, before, nearest = _prefix(y, gathered, order, found, top_p, total, top)
    else:
        total, _ = _sums(y, largest)
        kept, before, nearest = _prefix(y, gathered, order, found, top_p, total, top)
        if nearest < 1e-5:  # the float32 sum cannot tell on which side of p the last token lies
            kept, before, nearest = _prefix(y, gathered, order, found, top_p, _sum_exactly(y, top), top)
    weighted, mass = 0.0, 0.0
    for i in range(kept):
        token = gathered[order[i]]
        d = np.float64(y[token]) - top
        weighted += d * math.exp(d)
        mass += math.exp(np.float64(x[token]) - np.float64(raw_largest))
    log_sum = math.log(before)
    return kept, np.float64(y[gathered[order[kept - 1]]]) if top_p < 1.0 else -np.inf, log_sum, max(log_sum - weighted / before, 0.0), mass


@njit(cache=True, nogil=True)
def _prefix(y, gathered, order, found, top_p, total, top):
    """How many of the best tokens stay, their mass, and how near (relative to `total`) the decision came to p."""
    kept, before, nearest = 0, 0.0, 1.0
    while kept < found and (top_p >= 1.0 or kept == 0 or before < top_p * total):
        nearest = min(nearest, abs(before / total - top_p))
        before += math.exp(np.float64(y[gathered[order[kept]]]) - top)
        kept += 1
    return kept, before, min(nearest, abs(before / total - top_p))


@njit(cache=True, nogil=True)
def _sum_exactly(y, top):
    total = 0.0
    for i in range(len(y)):
        d = np.float64(y[i]) - top
        if d > -40.0:
            total += math.exp(d)
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _kept_mass(x, y, largest):
    """How many tokens are left, and Σ e^(raw − raw max) over them."""
    kept, mass = 0, 0.0
    for start in range(0, len(x), SEGMENT):
        count, part = np.int32(0), np.float32(0.0)
        for i in range(start, min(start + SEGMENT, len(x))):
            is_kept = y[i] > -np.inf
            count += np.int32(is_kept)
            part += _exp(x[i] - largest) if is_kept else np.float32(0.0)
        kept += count
        mass += part
    return kept, mass


@njit(cache=True, nogil=True)
def _cut_code(token, value, edit_ids, edit_codes, outside_code, codes, min_p_value, top_k_value, top_p_value, top_p_last):
    """The first step that made the token −inf, 0 if it survives."""
    at = np.searchsorted(edit_ids, token)
    edited = at < len(edit_ids) and edit_ids[at] == token
    if edited and edit_codes[at] > 0:
        return np.int64(edit_codes[at])
    if outside_code > 0 and not edited:
        return np.int64(outside_code)
    if value == -np.inf:
        return np.int64(0)  # the model itself gave −inf
    if value < min_p_value:
        return np.int64(codes[0])
    if value < top_k_value:
        return np.int64(codes[1])
    if value < top_p_value or (value == top_p_value and token > top_p_last):
        return np.int64(codes[2])
    return np.int64(0)


@njit(cache=True, nogil=True)
def _drop_repeated(ids, count):
    for i in range(1, count):
        for j in range(i):
            if ids[j] == ids[i]:
                ids[i] = -1
                break


@njit(cache=True, nogil=True)
def _find(ids, count, own):
    for i in range(count):
        if ids[i] == own:
            return i
    return -1
