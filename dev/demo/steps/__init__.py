"""The steps, in the order in which they are played; another step is another module, named here."""

from __future__ import annotations

from dev.demo.steps import age, burst, count, death, delete, drain, evict, join, namespace, rollout

STEPS = (
    delete.STEP,
    evict.STEP,
    drain.STEP,
    death.STEP,
    namespace.STEP,
    age.STEP,
    count.STEP,
    join.STEP,
    burst.STEP,
    rollout.STEP,
)
