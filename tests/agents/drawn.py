"""What a test draws anew each time it is run."""

from __future__ import annotations

from random import SystemRandom


def drawn_seed() -> int:
    """A seed that nobody could know. It is printed, so that a test that fails says which one it was."""
    seed = SystemRandom().randrange(2**32)
    print(f"the seed is {seed}")
    return seed
