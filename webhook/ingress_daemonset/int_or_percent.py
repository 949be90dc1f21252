"""A budget as it is written: a number, or a percentage."""

Share = int | str
"""A number, or a percentage such as ``"25%"``."""

WAY_OUT = 'write a whole number, or a percentage from "0%" to "100%"'


def amount(share: Share) -> int:
    """The number, or that of the percentage; ValueError for what is neither."""
    if isinstance(share, int):
        number = share
    else:
        digits = share.removesuffix("%")
        if (
            digits == share
            or not (digits.isascii() and digits.isdigit())
            or len(digits) > 3
            or int(digits) > 100
        ):
            raise ValueError(f"{share[:20]!r} is no budget: {WAY_OUT}")
        number = int(digits)
    if number < 0:
        raise ValueError(f"{number} is no budget: {WAY_OUT}")
    return number


def is_some(share: Share) -> bool:
    """Whether it is more than nothing; what is no budget is not."""
    try:
        return amount(share) > 0
    except ValueError:
        return False
