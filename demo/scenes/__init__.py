"""The scenes, in the order in which they are played; another scene is another module, named here."""

from __future__ import annotations

from demo.scenes import age, burst, count, death, delete, drain, evict, join, namespace, rollout

SCENES = (
    delete.SCENE,
    evict.SCENE,
    drain.SCENE,
    death.SCENE,
    namespace.SCENE,
    age.SCENE,
    count.SCENE,
    join.SCENE,
    burst.SCENE,
    rollout.SCENE,
)
