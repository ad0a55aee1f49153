"""A place for payloads in the memory of this process."""

from collections.abc import Collection

from tarry.store.payloads.place import PayloadPlace


class MemoryPlace(PayloadPlace):
    url = "memory://"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        self.objects[name] = data

    def read(self, name: str, most: int) -> bytes | None:
        found = self.objects.get(name)
        return None if found is None else found[:most]

    def delete(self, names: Collection[str]) -> None:
        for name in names:
            self.objects.pop(name, None)
