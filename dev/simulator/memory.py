"""How much our programs remember: the entries of all containers that their objects have, by class and attribute."""

from __future__ import annotations

import gc
from collections import Counter, deque

OURS = frozenset({"calico", "certs", "cloud", "controllers", "kube", "runtime", "webhook"})
BOUNDED = frozenset({"Answers._digests", "Inventory._spent", "Pending._done_callbacks"})
"""Up to a number; for an hour; of the last batch of each sender."""


def remembered() -> Counter[str]:
    gc.collect()
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        if str(kind.__module__).partition(".")[0] not in OURS:
            continue
        for name, value in (getattr(each, "__dict__", None) or {}).items():
            if isinstance(value, dict | list | set | deque):
                found[f"{kind.__qualname__}.{name}"] += len(value)
    return Counter({name: count for name, count in found.items() if name not in BOUNDED})
