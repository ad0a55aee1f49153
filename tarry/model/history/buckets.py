"""Durations in buckets: histograms that can be added.

The layout is that of HdrHistogram (Gil Tene, hdrhistogram.org), with a coarser resolution: each power of two is cut
into 4 buckets of equal width. A bucket is at most a quarter as wide as its lower end, and its middle stands for all
that is in it. So a percentile that is read from buckets differs from the true one by at most an eighth (12.5 %).

Bucket 0 has all that is shorter than 64 microseconds. The last one, `LAST`, has all that is 25 days or longer.
"""

from collections.abc import Mapping

# 64 microseconds: shorter than a claim takes, so nothing below can be told apart anyway.
_FIRST_BITS = 7
_SHIFT = 4 * _FIRST_BITS + 3
LAST = 141


def bucket_of(duration: int) -> int:
    """The number of the bucket of this duration in microseconds."""
    if duration < 64:
        return 0
    # The number of bits says which power of two, and the two bits after the first say which quarter of it.
    bits = duration.bit_length()
    bucket = 4 * bits + (duration >> (bits - 3)) - _SHIFT
    return bucket if bucket < LAST else LAST


def lower_end(bucket: int) -> int:
    """The shortest duration in the bucket, in microseconds."""
    if bucket <= 0:
        return 0
    octave, quarter = divmod(bucket - 1, 4)
    return (4 + quarter) << (octave + _FIRST_BITS - 3)


def middle_of(bucket: int) -> int:
    """The duration that stands for those in the bucket, in microseconds; of the last bucket its lower end."""
    low = lower_end(bucket)
    return low if bucket >= LAST else (low + lower_end(bucket + 1)) // 2


def percentile(buckets: Mapping[int, int], share: float) -> int | None:
    """The duration in microseconds that this share (0 to 1) of all do not exceed, to within an eighth; None: there are
    none. buckets: how many durations each has, by its number."""
    wanted = share * sum(buckets.values())
    reached = 0
    for bucket in sorted(buckets):
        reached += buckets[bucket]
        if reached and reached >= wanted:
            return middle_of(bucket)
    return None
