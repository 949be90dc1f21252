"""A budget as it is written: a number, or a percentage."""

Share = int | str
"""A number, or a percentage such as ``"25%"``."""

WAY_OUT = 'write a whole number, or a percentage from "0%" to "100%"'


def amount(share: Share) -> int:
    """The number, or that of the percentage. ValueError."""
    if isinstance(share, int):
        if share < 0:
            raise ValueError(f"{share} is no budget: {WAY_OUT}")
        return share
    digits = share.removesuffix("%")
    is_number = digits != share and digits.isascii() and digits.isdigit() and len(digits) <= 3
    if not is_number or int(digits) > 100:
        raise ValueError(f"{share[:20]!r} is no budget: {WAY_OUT}")
    return int(digits)


def is_some(share: Share) -> bool:
    """Whether it is a budget of more than 0."""
    try:
        return amount(share) > 0
    except ValueError:
        return False


def share(value: Share, whole: int) -> int:
    """*value*, or that percentage of *whole*: rounded up, at least 1 unless it is 0%. ValueError."""
    number = amount(value)
    if isinstance(value, int):
        return number
    return max(1, -(-number * whole // 100)) if number else 0
