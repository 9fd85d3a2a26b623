"""Numbers as people read them."""

from __future__ import annotations


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def human_age(seconds: float) -> str:
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    unit, size = next((each for each in units if seconds >= each[1]), units[-1])
    number = f"{seconds / size:.1f}".removesuffix(".0")
    return f"{number} {unit}{'' if number == '1' else 's'}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
