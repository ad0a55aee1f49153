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

            # Found at once from now on: this call and the import would cost each enqueue a microsecond.
            found = self.__dict__[name] = getattr(asyncio, name)
            return found

    asyncio = _Asyncio()
