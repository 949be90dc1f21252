"""Whatever goes wrong between us and Tencent Cloud is one of these errors, named for what to do about it.

::

    CloudError
    ├── Unavailable      no usable answer came: the call may or may not have been carried out
    │   └── Unreachable  no connection: it was not carried out
    ├── ServerFault      the cloud failed within: it may or may not have been carried out
    ├── Throttled        too many calls: it was not carried out
    ├── QuotaExceeded    no more of it until a human raises a limit, pays, or a day is over
    ├── NotPermitted     permissions, credentials, clock or an account that has not this product
    │   └── NotConfigured  this process has no credentials or no region
    ├── StateConflict    not in the present state: look again
    │   └── InProgress   an earlier call with the same ClientToken is still being carried out
    ├── AlreadyBound     the instance has an address, or can have none of this type: look again
    ├── Gone             no such address, instance or tag
    ├── TagMissing       allocation names a tag that must be created first
    ├── TagExists        the tag to create is there
    ├── TokenRefused     the ClientToken is spent: allocate with another one
    ├── Blocked          a blocked address, or one in arrears or protected
    └── Rejected         anything else: a mistake of ours or in the configuration
"""

from __future__ import annotations

import re


class CloudError(Exception):
    """*code* and *message* are the cloud's own, *request_id* is what its support asks for."""

    def __init__(self, code: str, message: str, *, action: str, request_id: str = "") -> None:
        said_by = f", request {request_id}" if request_id else ""
        super().__init__(f"{action}: {message} ({code}{said_by})")
        self.code, self.message, self.action, self.request_id = code, message, action, request_id

    @classmethod
    def result(cls) -> str:
        """The name of its kind in metrics, for example not_permitted."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


class Unavailable(CloudError):
    pass


class Unreachable(Unavailable):
    pass


class ServerFault(CloudError):
    pass


class Throttled(CloudError):
    pass


class QuotaExceeded(CloudError):
    pass


class NotPermitted(CloudError):
    pass


class NotConfigured(NotPermitted):
    pass


class StateConflict(CloudError):
    pass


class InProgress(StateConflict):
    pass


class AlreadyBound(CloudError):
    pass


class Gone(CloudError):
    pass


class TagMissing(CloudError):
    pass


class TagExists(CloudError):
    pass


class TokenRefused(CloudError):
    pass


class Blocked(CloudError):
    pass


class Rejected(CloudError):
    pass


ITEM_REFUSED = (Gone, StateConflict, Blocked, Rejected, NotPermitted, QuotaExceeded)
"""What the cloud says of one item, and means the whole batch."""
PERHAPS_FOR_ALL = (NotPermitted, QuotaExceeded)
"""What may be true of one item, by a policy or a limit, or of all."""


class RetryAfter(Exception):
    """*cause* stands in the way, and another attempt within *seconds* would not help."""

    def __init__(self, cause: Exception, seconds: float) -> None:
        super().__init__(str(cause))
        self.cause, self.seconds = cause, seconds
