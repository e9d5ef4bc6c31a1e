"""The compiled part of the CPU path: one row of logits, from its numbers to everything that is said about it.

All functions that numba compiles stand in this one file: its cache looks at the date of a function's own file, not at
those of the functions it calls. Rows lie in a buffer padded with −inf to whole segments, because loops of a fixed length
become vector instructions three times as fast as others. Sums are float32 within a segment and float64 over segments.
"""

import math

import numpy as np
from numba import njit

SEGMENT = 128  # numbers a partial sum
# No `ninf`: a cut token's −inf must stay what it is. NaN rows are found by their bits before anything is computed.
FAST = {"nnan", "nsz", "arcp", "contract", "afn", "reassoc"}
INF_KEY = 0x7F800000  # keys: see _key
MINUS_INF_KEY = -0x7F800001
SUM_ERROR = 1e-6  # relative, of a mass summed in float32 segments; measured below 3e-7
FEW = 256  # survivors that are sorted as they are
DEEPEST = 16.0  # nats below the best token where the search for top-p begins
SEARCH_STEPS = 7


@njit(cache=True, nogil=True)
def score_block(values, bits, is_bfloat16, vocab, first, last, own_ids, requested, n, edit_ids, edit_values, edit_codes, outside_code,
                temperature, min_p_drop, top_k, top_p, codes, is_adjusted,
                floats, integers, ids_out, floats_out, integers_out):  # fmt: skip
    """Rows [first, last) of `values` (float32) or `bits` (bfloat16), into the same rows of the outputs; see cpu.score_rows."""
    segments = (vocab + SEGMENT - 1) // SEGMENT
    x = np.full(segments * SEGMENT, -np.inf, np.float32)
    y = np.full(segments * SEGMENT, -np.inf, np.float32)
    raw_maxima = np.empty(segments, np.float32)
    maxima = np.empty(segments, np.float32)
    gathered = np.empty(vocab, np.int64)
    for row in range(first, last):
        if is_bfloat16:
            _widen(bits[row], x.view(np.int32))
        else:
            x[:vocab] = values[row]
        _score_row(x, y, raw_maxima, maxima, gathered, own_ids[row], requested, n, edit_ids, edit_values[row], edit_codes[row],
                   outside_code, temperature, min_p_drop, top_k, top_p, codes, is_adjusted,
                   floats[row], integers[row], ids_out[row], floats_out[:, row], integers_out[:, row])  # fmt: skip


@njit(cache=True, nogil=True)
def _score_row(x, y, raw_maxima, maxima, gathered, own, requested, n, edit_ids, edit_values, edit_codes, outside_code,
               temperature, min_p_drop, top_k, top_p, codes, is_adjusted,
               floats, integers, ids, candidate_floats, candidate_integers):  # fmt: skip
    floats[:] = np.nan
    integers[:] = -1
    largest, kept, is_bad = _examine(x.view(np.int32), raw_maxima)
    integers[4] = is_bad
    if is_bad:
        return
    if kept == 0:
        integers[2] = 0
        return
    total, weighted = _sums(x, largest)
    log_sum = math.log(total)
    raw_entropy, mass = max(log_sum - weighted / total, 0.0), 1.0
    count = _top_ids(x, raw_maxima, n, gathered, ids)
    best = x[ids[:count]]
    # thresholds of the filters, in adjusted values; a token survives at or above all of them
    min_p_value, top_k_value, top_p_value, top_p_last = -np.inf, -np.inf, -np.inf, np.int64(len(x))
    after_largest, after_log_sum, after_entropy, after_best = largest, log_sum, raw_entropy, best
    if is_adjusted:
        after_largest, is_cut = _adjust(x, y, raw_maxima, maxima, edit_ids, edit_values, outside_code, temperature)
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
        floor = _at_least(max(min_p_value, top_k_value))
        if is_cut or floor > -np.inf or top_p < 1.0:
            kept, after_total, after_weighted, mass = _sums_from(x, y, maxima, floor, largest, after_largest)
        else:
            after_total, after_weighted = _sums(y, after_largest)
            mass = total
        if top_p < 1.0:
            kept, top_p_value, top_p_last, after_total, after_weighted, mass = _nucleus(
                x, y, maxima, floor, kept, after_total, top_p, largest, after_largest, gathered
            )
        after_log_sum = math.log(after_total)
        after_entropy = max(after_log_sum - after_weighted / after_total, 0.0)
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
        candidate_integers[0, i] = _rank(x, raw_maxima, raw, best)
        candidate_integers[2, i] = code
        if code > 0 or processed == -np.inf:
            candidate_floats[2, i] = -np.inf
            candidate_floats[3, i] = -np.inf
        else:
            candidate_floats[2, i] = processed
            candidate_floats[3, i] = min((processed - after_largest) - np.float32(after_log_sum), np.float32(0.0))
            candidate_integers[1, i] = _rank(y, maxima, processed, after_best) if is_adjusted else candidate_integers[0, i]
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
def _widen(bits, wide):
    """bfloat16 is the upper half of a float32."""
    for i in range(len(bits)):
        wide[i] = np.int32(bits[i]) << 16


@njit(cache=True, nogil=True, inline="always")
def _key(bits):
    """A float32's bits as an integer of the same order (its own inverse); integer maxima become vector instructions."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@njit(cache=True, nogil=True)
def _examine(bits, maxima):
    """bits: a row of float32 as int32. Fills the segments' maxima; -> the row's, how many are finite, whether NaN or +inf is among them."""
    out = maxima.view(np.int32)
    highest, lowest, finite = MINUS_INF_KEY, INF_KEY, 0
    for s in range(len(maxima)):
        high, low, count = MINUS_INF_KEY, INF_KEY, 0
        for i in range(SEGMENT):
            key = _key(bits[s * SEGMENT + i])
            high = max(high, key)
            low = min(low, key)
            count += key > MINUS_INF_KEY
        out[s] = _key(high)
        highest, lowest, finite = max(highest, high), min(lowest, low), finite + count
    is_bad = highest >= INF_KEY or lowest < MINUS_INF_KEY
    return np.int32(_key(highest)).view(np.float32), finite, is_bad


@njit(cache=True, nogil=True, fastmath=FAST, inline="always")
def _exp(d):
    """e**d for d ≤ 0 in float32 (Cephes expf), relative error below 2e-7; below −87 it is e**−87, which adds nothing."""
    d = max(d, np.float32(-87.0))
    k = np.floor(d * np.float32(1.44269504088896341) + np.float32(0.5))
    r = d - k * np.float32(0.693359375) + k * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    return p * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(cache=True, nogil=True, fastmath=FAST)
def _sums(x, largest):
    """Σ eᵈ and Σ d·eᵈ with d = x − largest; a −inf adds nothing to either."""
    total, weighted = 0.0, 0.0
    for s in range(len(x) // SEGMENT):
        a, b = np.float32(0.0), np.float32(0.0)
        for i in range(SEGMENT):
            d = max(x[s * SEGMENT + i] - largest, np.float32(-87.0))
            e = _exp(d)
            a += e
            b += d * e
        total += a
        weighted += b
    return total, weighted


@njit(cache=True, nogil=True, fastmath=FAST)
def _sums_from(x, y, maxima, floor, raw_largest, largest):
    """The finite entries of y at or above `floor`: how many, Σ eᵈ, Σ d·eᵈ with d = y − largest, and Σ e^(x − raw_largest)."""
    kept, total, weighted, mass = 0, 0.0, 0.0, 0.0
    for s in range(len(maxima)):
        if maxima[s] < floor or maxima[s] == -np.inf:
            continue
        count, a, b, c = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for i in range(SEGMENT):
            value = y[s * SEGMENT + i]
            weight = np.float32(1.0) if (value >= floor) & (value > -np.inf) else np.float32(0.0)
            d = max(value - largest, np.float32(-87.0))
            e = _exp(d) * weight
            count += weight
            a += e
            b += d * e
            c += _exp(x[s * SEGMENT + i] - raw_largest) * weight
        kept += int(count)
        total += a
        weighted += b
        mass += c
    return kept, total, weighted, mass


@njit(cache=True, nogil=True, fastmath=FAST)
def _mass_from(y, maxima, floor, largest):
    """Σ e^(y − largest) over what is at or above `floor`."""
    total = 0.0
    for s in range(len(maxima)):
        if maxima[s] < floor:
            continue
        a = np.float32(0.0)
        for i in range(SEGMENT):
            value = y[s * SEGMENT + i]
            a += _exp(value - largest) if value >= floor else np.float32(0.0)
        total += a
    return total


@njit(cache=True, nogil=True)
def _exact_mass_from(y, floor, largest):
    total, top = 0.0, np.float64(largest)
    for i in range(len(y)):
        if y[i] >= floor:
            total += math.exp(np.float64(y[i]) - top)
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _rank(x, maxima, value, best):
    """1 + the number of greater values in the row; they are all among the best ones if `value` reaches the last of these."""
    rank = 1
    if len(best) > 0 and value >= best[-1]:
        for i in range(len(best)):
            rank += best[i] > value
        return rank
    for s in range(len(maxima)):
        if maxima[s] > value:
            count = np.float32(0.0)
            for i in range(SEGMENT):
                count += np.float32(1.0) if x[s * SEGMENT + i] > value else np.float32(0.0)
            rank += int(count)
    return rank


@njit(cache=True, nogil=True)
def _adjust(x, y, raw_maxima, maxima, edit_ids, edit_values, outside_code, temperature):
    """y: x with its edited entries, divided by the temperature; nothing but them where only listed tokens are allowed.

    Fills the segments' maxima; -> the row's, and whether an entry was cut.
    """
    if outside_code > 0:
        y[:] = -np.inf
        maxima[:] = -np.inf
    else:
        for i in range(len(x)):
            y[i] = x[i] / temperature
        for s in range(len(maxima)):
            maxima[s] = raw_maxima[s] / temperature  # division keeps the order
    is_cut = outside_code > 0
    for e in range(len(edit_ids)):
        y[edit_ids[e]] = edit_values[e] / temperature
        is_cut |= edit_values[e] == -np.inf
    done, out = -1, maxima.view(np.int32)
    for e in range(len(edit_ids)):
        s = edit_ids[e] // SEGMENT
        if s != done:
            bits = y[s * SEGMENT : (s + 1) * SEGMENT].view(np.int32)
            high = MINUS_INF_KEY
            for i in range(SEGMENT):
                high = max(high, _key(bits[i]))
            out[s] = _key(high)
            done = s
    return maxima.max(), is_cut


@njit(cache=True, nogil=True)
def _at_least(threshold):
    """The smallest float32 not below a float64, so that float32 numbers compare with it alike."""
    near = np.float32(threshold)
    return np.nextafter(near, np.float32(np.inf)) if near < threshold else near


@njit(cache=True, nogil=True)
def _floor_of_best(maxima, k):
    """A value that at least k tokens reach: the k-th best of the segments' maxima; −inf if there are fewer segments."""
    if k > len(maxima):
        return np.float32(-np.inf)
    return np.partition(maxima, len(maxima) - k)[len(maxima) - k]


@njit(cache=True, nogil=True)
def _gather(x, maxima, floor, ceiling, gathered):
    """Ids of the finite values in [floor, ceiling), ascending; only segments whose maximum reaches the floor are looked at."""
    count = 0
    for s in range(len(maxima)):
        if maxima[s] >= floor:
            for i in range(s * SEGMENT, (s + 1) * SEGMENT):
                if x[i] >= floor and x[i] < ceiling and x[i] > -np.inf:
                    gathered[count] = i
                    count += 1
    return count


@njit(cache=True, nogil=True)
def _top_ids(x, maxima, n, gathered, ids):
    """The n best finite values' ids into `ids`, best first, ties by lower id; returns how many there are."""
    if n == 0:
        return 0
    found = _gather(x, maxima, _floor_of_best(maxima, n), np.float32(np.inf), gathered)
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
    found = _gather(y, maxima, _floor_of_best(maxima, k), np.float32(np.inf), gathered)
    if found < k:
        return np.float32(-np.inf)  # fewer than k tokens are left: all of them stay
    values = y[gathered[:found]]
    return np.partition(values, found - k)[found - k]


@njit(cache=True, nogil=True)
def _nucleus(x, y, maxima, floor, found, total, top_p, raw_largest, largest, gathered):
    """What top-p keeps of the `found` entries at or above `floor`, whose mass is `total`.

    Only the tokens between two values are sorted: those above `ceiling` are surely kept, those below `low` surely not.
    -> number kept, value and id of the last one, Σ eᵈ, Σ d·eᵈ, Σ e^(raw − raw max) over the kept.
    """
    low, ceiling = floor, np.float32(np.inf)
    if found > FEW:
        low, ceiling = _border(y, maxima, floor, top_p * total, total * SUM_ERROR, largest)
    sure, sure_total, sure_weighted, sure_mass = 0, 0.0, 0.0, 0.0
    if ceiling < np.inf:
        sure, sure_total, sure_weighted, sure_mass = _sums_from(x, y, maxima, ceiling, raw_largest, largest)
    some = gathered[: _gather(y, maxima, low, ceiling, gathered)]
    some = some[np.argsort(-y[some], kind="mergesort")]
    kept, nearest = _prefix(y, some, sure_total, top_p, total, largest)
    if nearest < SUM_ERROR:  # on which side of p the last token lies is too close to call in float32
        kept, _ = _prefix(y, some, _exact_mass_from(y, ceiling, largest), top_p, _exact_mass_from(y, floor, largest), largest)
    for i in range(kept):
        d = np.float64(y[some[i]]) - np.float64(largest)
        sure_total += math.exp(d)
        sure_weighted += d * math.exp(d)
        sure_mass += math.exp(np.float64(x[some[i]]) - np.float64(raw_largest))
    return sure + kept, np.float64(y[some[kept - 1]]), some[kept - 1], sure_total, sure_weighted, sure_mass


@njit(cache=True, nogil=True)
def _border(y, maxima, floor, wanted, error, largest):
    """(low, ceiling): the mass from `low` up reaches `wanted`, that from `ceiling` up does not. By halving the distance."""
    low, ceiling = floor, np.float32(np.inf)
    near, far = np.float32(0.0), np.float32(DEEPEST)
    depth = far
    for _ in range(SEARCH_STEPS):
        value = max(largest - depth, floor)
        mass = _mass_from(y, maxima, value, largest)
        if mass >= wanted + error:
            low, far = value, depth
        elif mass < wanted - error:
            ceiling, near = value, depth
            if depth == far:
                break  # reaches deeper than we look
        else:
            break
        depth = (near + far) / np.float32(2.0)
    return low, ceiling


@njit(cache=True, nogil=True)
def _prefix(y, order, before, top_p, total, largest):
    """How many of the tokens `order` (best first) stay, with mass `before` above them; how near, relative to `total`, a
    decision came to p."""
    kept, nearest, top = 0, 1.0, np.float64(largest)
    wanted = top_p * total
    is_first = before == 0.0
    while kept < len(order) and (before < wanted or (is_first and kept == 0)):
        nearest = min(nearest, abs(before - wanted) / total)
        before += math.exp(np.float64(y[order[kept]]) - top)
        kept += 1
    return kept, min(nearest, abs(before - wanted) / total)


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
