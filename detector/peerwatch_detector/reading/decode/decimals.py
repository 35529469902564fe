"""Decimal text to float64, correctly rounded, without a Python object per number.

The text of a JSON response must give the very value that the binary formats carry, or two apis of
reading would disagree. Short numbers are one exact multiplication or division (W. D. Clinger, "How
to read floating point numbers accurately", 1990); the others take the product of their digits with
a power of five of 128 bits (D. Lemire, "Number parsing at a gigabyte per second", 2021).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import as_float, compiled, whole

Bytes = NDArray[np.uint8]

# Of ten: below the first, 64 bits of digits are 0 as a double; above the second they are infinite.
_SMALLEST_POWER, _LARGEST_POWER = -342, 308
# A number that can take up one digit more within 64 bits.
_ROOM_FOR_ONE = np.uint64(10**18)
# Of a double (IEEE 754).
_MANTISSA_BITS = 52


def _powers_of_five() -> NDArray[np.uint64]:
    """Return the leading 128 bits of 5**q in two words, shape (n_powers, 2), high word first."""
    words = []
    for power in range(_SMALLEST_POWER, _LARGEST_POWER + 1):
        if power >= 0:
            digits = 5**power
            digits = digits << 128 >> digits.bit_length()
        else:
            divisor = 5**-power
            # Rounded up where the product may be exact, as the proof of the method wants it.
            spare = 127 if power >= -27 else divisor.bit_length() + 128
            digits = (1 << (divisor.bit_length() + spare)) // divisor + 1
            digits >>= digits.bit_length() - 128
        words.append((digits >> 64, digits & (2**64 - 1)))
    return np.array(words, dtype=np.uint64)


_POWERS_OF_FIVE = _powers_of_five()
_EXACT_TENS = np.array([10.0**power for power in range(23)])
_U = np.uint64
_ONE, _LOW_32, _32 = _U(1), _U(0xFFFFFFFF), _U(32)


@compiled
def read_decimal(text: Bytes, at: int) -> tuple[float, int]:
    """Read the number that begins at a place: digits, a point, an exponent, NaN or [+-]Inf.

    The text must be followed by something that is no part of a number.

    Returns
    -------
    tuple[float, int]
        The value and the place behind it; where there is no number, ``(0, -1 - place)`` of the
        byte that does not fit.
    """
    negative = text[at] == 45  # -
    if negative or text[at] == 43:
        at += 1
    if text[at] == 73 or text[at] == 78:  # I, N
        return _read_word(text, at, negative)
    digits, power, begin = _U(0), 0, at
    after_point = False
    while True:
        byte = text[at]
        if 48 <= byte <= 57:
            if digits < _ROOM_FOR_ONE:
                digits = digits * _U(10) + _U(byte - 48)
                power -= 1 if after_point else 0
            elif not after_point:
                # What is beyond 19 digits is below the precision of any float64 written shortest.
                power += 1
        elif byte == 46 and not after_point:
            after_point = True
            begin += 1
        else:
            break
        at += 1
    if at == begin:
        return 0.0, -1 - at
    if text[at] == 101 or text[at] == 69:  # e, E
        extra, at = _read_exponent(text, at + 1)
        if at < 0:
            return 0.0, at
        power += extra
    value = to_float(digits, power)
    return (-value if negative else value), at


@compiled
def _read_word(text: Bytes, at: int, negative: bool) -> tuple[float, int]:
    """Read ``NaN`` or ``Inf``, as Go's strconv writes them."""
    if text[at] == 73:
        second, third, value = 110, 102, np.inf  # Inf
    else:
        second, third, value = 97, 78, np.nan  # NaN
    if text[at + 1] != second:
        return 0.0, -2 - at
    if text[at + 2] != third:
        return 0.0, -3 - at
    return (-value if negative else value), at + 3


@compiled
def _read_exponent(text: Bytes, at: int) -> tuple[int, int]:
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += 1
    begin, value = at, 0
    while 48 <= text[at] <= 57:
        if value < 100_000:
            value = value * 10 + whole(text[at]) - 48
        at += 1
    if at == begin:
        return 0, -1 - at
    return (-value if negative else value), at


@compiled
def to_float(digits: np.uint64, power: int) -> float:
    """Return ``digits * 10**power`` as the nearest float64, ties to even.

    Parameters
    ----------
    digits
        An unsigned integer of 64 bits.
    power
        Any power of ten.
    """
    if digits <= _U(1 << 53) and -22 <= power <= 22:
        ten: float = _EXACT_TENS[abs(power)]
        return float(digits) / ten if power < 0 else float(digits) * ten
    if digits == 0 or power < _SMALLEST_POWER:
        return 0.0
    if power > _LARGEST_POWER:
        return np.inf
    return as_float(_bits_of(digits, power))


@compiled
def _bits_of(digits: np.uint64, power: int) -> np.uint64:
    """Return the bit pattern of the nearest float64; names and steps as in Lemire's paper."""
    zeros = 0
    while digits >> _U(63) == 0:
        digits <<= _ONE
        zeros += 1
    high, low = _product(digits, _POWERS_OF_FIVE[power - _SMALLEST_POWER, 0])
    if high & _U(0x1FF) == _U(0x1FF):
        more, _ = _product(digits, _POWERS_OF_FIVE[power - _SMALLEST_POWER, 1])
        low += more
        high += _ONE if more > low else _U(0)
    upper = high >> _U(63)
    shift = upper + _U(64 - _MANTISSA_BITS - 3)
    mantissa = high >> shift
    exponent = ((217_706 * power) >> 16) + 63 + whole(upper) - zeros + 1023
    if exponent <= 0:
        if exponent < -62:
            return _U(0)
        mantissa >>= _U(1 - exponent)
        return (mantissa + (mantissa & _ONE)) >> _ONE
    tie = low <= _ONE and -4 <= power <= 23 and mantissa & _U(3) == _ONE
    if tie and mantissa << shift == high:
        mantissa ^= _ONE
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa >= _U(2 << _MANTISSA_BITS):
        mantissa = _U(1 << _MANTISSA_BITS)
        exponent += 1
    if exponent >= 2047:
        return _U(2047 << _MANTISSA_BITS)
    return (mantissa & _U((1 << _MANTISSA_BITS) - 1)) | (_U(exponent) << _U(_MANTISSA_BITS))


@compiled
def _product(left: np.uint64, right: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the two words of a product of 128 bits."""
    left_low, left_high = left & _LOW_32, left >> _32
    right_low, right_high = right & _LOW_32, right >> _32
    low, cross = left_low * right_low, left_high * right_low
    middle = (low >> _32) + (cross & _LOW_32) + left_low * right_high
    high = left_high * right_high + (cross >> _32) + (middle >> _32)
    return high, (middle << _32) | (low & _LOW_32)


@compiled
def read_milliseconds(text: Bytes, at: int) -> tuple[int, int]:
    """Read Unix seconds with up to three decimals as whole milliseconds.

    Returns
    -------
    tuple[int, int]
        As ``read_decimal``.
    """
    negative = text[at] == 45
    if negative:
        at += 1
    begin, value = at, 0
    while 48 <= text[at] <= 57 and at - begin < 15:
        value = value * 10 + whole(text[at]) - 48
        at += 1
    if at == begin:
        return 0, -1 - at
    scale = 1000
    if text[at] == 46:
        at += 1
        while 48 <= text[at] <= 57 and scale > 1:
            scale //= 10
            value = value * 10 + whole(text[at]) - 48
            at += 1
    value *= scale
    return (-value if negative else value), at
