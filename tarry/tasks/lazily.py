"""asyncio, loaded when it is first used: half of the time that `import tarry` takes is otherwise spent on it, also in
programs that never await anything. `from tarry.tasks.lazily import asyncio`."""

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
