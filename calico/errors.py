"""Errors of a reservation."""


class NotReserved(Exception):
    """The reservation could not be made durable in time; the message says why."""


class NotServed(Exception):
    """The cluster serves IPReservation in none of the groups that may be used."""
