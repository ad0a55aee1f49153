"""How many of something, in words."""


def quantity(count: int, noun: str = "job") -> str:
    """`1 job`, `1,200 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def jobs_wait(count: int) -> str:
    """`1 job waits`, `1,200 jobs wait`."""
    return f"{quantity(count)} wait{'s' if count == 1 else ''}"
