"""asyncio, loaded at its first use: `from tarry.tasks.lazy_asyncio import asyncio`."""

# Otherwise it would take half of the time of `import tarry`, also in programs that never await anything.

from typing import TYPE_CHECKING, Any

__all__ = ["asyncio"]

if TYPE_CHECKING:
    import asyncio
else:

    class _Asyncio:
        def __getattr__(self, name: str) -> Any:
            import asyncio  # noqa: PLC0415 - the point of this module

            return getattr(asyncio, name)

    asyncio = _Asyncio()
