"""A place for payloads in the memory of this process."""

from collections.abc import Collection

from tarry.store.payloads.place import PayloadPlace, StoredObject


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

    def page(self, namespace: str, after: str, limit: int) -> list[StoredObject]:
        names = sorted(name for name in self.objects if name.startswith(f"{namespace}/") and name > after)
        return [StoredObject(name, 0.0) for name in names[:limit]]

    def time_of(self, name: str) -> float:
        return 0.0
