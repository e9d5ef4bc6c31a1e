"""Device functions shared by the Triton kernels: sortable keys, online sums, an accurate tanh."""

import torch
import triton
import triton.language as tl

INTERPRETED = bool(triton.knobs.runtime.interpret)
IN_INTERPRETER = tl.constexpr(INTERPRETED)
ABSENT = tl.constexpr(-0x8000000000000000)  # below every key
LAST = tl.constexpr(0x7FFFFFFFFFFFFFFF)  # above every key
INTERPRETED_PROCESSORS = 2  # enough to exercise the split of a row where there is no device


def processors(device: torch.device) -> int:
    """How many programs run at a time, one a multiprocessor."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else INTERPRETED_PROCESSORS


@triton.jit
def sortable(x):
    """float32 -> int32 in the same order, neighbours one apart: the magnitude's bits with the sign. Both zeros are 0."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


@triton.jit
def from_sortable(key):
    """int32 of `sortable` -> float32."""
    bits = tl.where(key < 0, -key | -0x80000000, key)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def ranked_keys(x, ids, present):
    """float32 values and their ids (below 2³¹) -> int64, larger is better: by value, then by lower id.

    What is not present comes after everything, −inf included.
    """
    low = (0x7FFFFFFF - ids).to(tl.int64)
    return tl.where(present, (sortable(x).to(tl.int64) << 32) | low, ABSENT)


@triton.jit
def key_values(keys):
    return from_sortable((keys >> 32).to(tl.int32))


@triton.jit
def key_ids(keys):
    return 0x7FFFFFFF - (keys & 0xFFFFFFFF)


@triton.jit
def finite_shift(maximum):
    """The maximum, or 0 where nothing is above −inf, so that −inf − shift is −inf and not NaN."""
    return tl.where(maximum == float("-inf"), 0.0, maximum)


@triton.jit
def moved_sums(total, weighted, old_maximum, new_shift, rate):
    """Σeᵈ and Σd·eᵈ with d = rate · (x − old maximum), moved to d = rate · (x − new shift).

    Sums over nothing (old maximum −inf) are zero and stay so.
    """
    delta = tl.where(old_maximum == float("-inf"), 0.0, old_maximum - new_shift) * rate
    scale = tl.exp(delta)
    # 0 · −inf: where the old sums vanish beside the new maximum they add nothing
    return total * scale, tl.where(scale > 0.0, scale * (weighted + delta * total), 0.0 * total)


@triton.jit
def largest_dividing_to(value, temperature):
    """The largest float32 that divides to what `value` divides to.

    Division can make neighbours equal; x > this is the same as x / temperature > value / temperature, without the
    division. Neighbours further than four apart stay apart unless the quotient is subnormal.
    """
    quotient = tl.div_rn(value, temperature)
    largest = value
    for step in tl.static_range(1, 5):
        near = from_sortable(sortable(value) + step)
        largest = tl.where(tl.div_rn(near, temperature) == quotient, near, largest)
    return largest


@triton.jit
def rounded_to(x, DTYPE: tl.constexpr):
    """float32 -> float32 with the digits of DTYPE, to nearest, ties to even."""
    if IN_INTERPRETER and tl.bfloat16 == DTYPE:
        # the interpreter cuts the digits off instead
        bits = x.to(tl.int32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
        return tl.where(x == x, nearest.to(tl.float32, bitcast=True), x)
    else:
        return x.to(DTYPE).to(tl.float32)


@triton.jit
def accurate_tanh(y):
    """float32, within 1e-7: through exp, and by its series near 0, where 1 − exp(−2y) loses digits."""
    shrink = tl.exp(-2.0 * tl.abs(y))
    far = (1.0 - shrink) / (1.0 + shrink)
    square = y * y
    near = y * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 + square * (-17.0 / 315.0))))
    return tl.where(tl.abs(y) < 0.1, near, tl.where(y < 0.0, -far, far))
