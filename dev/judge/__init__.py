"""What must be true for the outside, whatever happens: asked of a simulated world, and of a real control plane.

``Observation`` is what others than us can see at one instant; an invariant is a function of observations, which knows
nothing of our code. Each states its allowance. ``Judge`` asks all of them, and keeps what they found.
"""

from dev.judge.judge import Finding, Invariant, Judge, Promise
from dev.judge.observation import Disturbances, Observation

__all__ = ["Disturbances", "Finding", "Invariant", "Judge", "Observation", "Promise"]
