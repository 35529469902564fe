"""How numbers and metric names are written for people: 12.3 GB/s, 45 %, CPU usage."""

from __future__ import annotations

# Prefixes of the SI.
_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
# Base units as the presets spell them, and how a person writes them.
_SYMBOLS = {
    "seconds": "s",
    "watts": "W",
    "hertz": "Hz",
    "bytes": "B",
    "bytes per second": "B/s",
    "bits per second": "bit/s",
    "joules": "J",
    "celsius": "°C",
}
# Nobody writes kiloseconds or kilodegrees.
_WITHOUT_PREFIX = {"s", "°C"}
_SPELLINGS = {
    word.lower(): word
    for word in ("CPU", "GPU", "PFC", "ECN", "CNP", "TCP", "RDMA", "SM", "NVLink", "PCIe")
} | {"tx": "transmit", "rx": "receive"}


def number(value: float) -> str:
    """Return a short text for a value: 12.3 M, 0.45, 900."""
    # Three digits round 999.9 up to 1e+03, so the next prefix begins where they do.
    for size, letter in _SI:
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def quantity(value: float | None, unit: str) -> str:
    """Return a value with its unit in the form people use.

    Parameters
    ----------
    value
        In the base unit; None = not known.
    unit
        The base unit in words; one that has no symbol is written out.

    Returns
    -------
    str
        For example "45 %", "312 W", "1.2 GB/s", "3.1 k packets/s", or "unknown".
    """
    if value is None:
        return "unknown"
    if unit == "ratio":
        return f"{number(100 * value)} %"
    symbol = _SYMBOLS.get(unit)
    if symbol in _WITHOUT_PREFIX:
        return f"{value:.4g} {symbol}"
    text = number(value)
    if symbol is None:
        return f"{text} {unit.replace(' per second', '/s')}"
    # The prefix belongs to the symbol: "1.2 GB/s".
    return text + symbol if text[-1].isalpha() else f"{text} {symbol}"


def metric_words(metric: str) -> str:
    """Return the name of a metric that has no title as a phrase: "CPU usage" for ``cpu_usage``."""
    words = metric.split("_")
    spelled = " ".join(_SPELLINGS.get(word, word) for word in words)
    return spelled[:1].upper() + spelled[1:]
