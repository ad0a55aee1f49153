"""Adds, edits, removes and tries HTTP tasks, for the command line and the HTTP API."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tarry.errors import ConfigError, TarryError, UnknownTask
from tarry.model.duration import SECOND

if TYPE_CHECKING:
    from tarry.push.catalog import HttpTaskCatalog
    from tarry.push.endpoint.endpoint_settings import Endpoint
    from tarry.push.http.address_guard import AddressGuard
    from tarry.push.http.response import HttpResponse
    from tarry.store.rules.base import Store


class TriedAnswer(Struct, frozen=True):
    """What an HTTP task makes of an answer."""

    outcome: str
    """`delivered`, `again`, `final` or `disabled`."""
    reason: str
    delay: float | None
    """Seconds from the first attempt to the second; null: there is no second, or it comes at once."""


class HttpTaskEditor:
    """Changes the HTTP tasks that are registered in the store. Those of the settings stay as the file has them.

    declare_limits: makes the store keep the limits of the app's functions. may_write_places: whether the editor may
    write `env:NAME` and `file:PATH` where they were not.
    """

    def __init__(
        self,
        catalog: "HttpTaskCatalog",
        store: "Store",
        declare_limits: "Callable[[Store], None]",
        may_write_places: bool = True,
    ) -> None:
        self._catalog, self._store, self._declare_limits = catalog, store, declare_limits
        self._may_write_places = may_write_places

    @property
    def _secret_places(self) -> "Collection[str]":
        return self._catalog.config().push.secrets

    @property
    def _guard(self) -> "AddressGuard":
        from tarry.push.http.address_guard import AddressGuard  # noqa: PLC0415 - brings what checks addresses

        return AddressGuard(self._catalog.config().push.allow)

    def add(self, name: str, settings: dict[str, Any]) -> "Endpoint":
        """Registers a task; ConfigError if the name is taken or a setting is wrong."""
        from tarry.push.endpoint import endpoint_cells  # noqa: PLC0415 - brings what checks URLs and rules
        from tarry.push.endpoint.endpoint_settings import EndpointError  # noqa: PLC0415 - as above

        self._catalog.load()
        if self._catalog.is_configured(name):
            raise EndpointError(f"{name} stands in {self._place(name)} already: edit it there", "task")
        if name in self._catalog.tasks and name not in self._catalog.endpoints:
            raise EndpointError(f"{name} is a function of the app; give the HTTP task another name", "task")
        return endpoint_cells.add(self._store, name, settings, self._guard, self._secret_places, self._may_write_places)

    def edit(self, name: str, changes: Mapping[str, Any], seen: str | None = None) -> "Endpoint | None":
        """Changes some settings; None takes one out, and a hidden value that is sent as it is shown stays. Returns the
        endpoint, None for a task of the configuration, of which only `enabled` can be changed. seen: the version that
        the editor saw. ConfigError if a setting is wrong; TaskChanged."""
        from tarry.push.endpoint import endpoint_cells  # noqa: PLC0415 - as above

        self._catalog.load()
        if not self._catalog.is_configured(name):
            return endpoint_cells.edit(
                self._store, name, changes, self._guard, self._secret_places, seen, self._may_write_places
            )
        if changes.keys() != {"enabled"} or not isinstance(changes["enabled"], bool):
            raise self._must_edit_file(name)
        self.set_enabled(name, changes["enabled"])
        return None

    def set_enabled(self, name: str, enabled: bool) -> None:
        """Pauses or resumes deliveries: the jobs of a task that is disabled wait. UnknownTask; ConfigError for a task
        that the settings file disables."""
        from tarry.push.endpoint import endpoint_cells  # noqa: PLC0415 - as above

        task = self._catalog.find(name)
        if task is None:
            raise UnknownTask(f"no HTTP task {name}; `tarry tasks` lists them")
        is_configured = self._catalog.is_configured(name)
        # The store can disable a task of the settings file, but not enable one that the file disables.
        if is_configured and self._catalog.is_disabled_by_file(name):
            raise self._must_edit_file(name)
        endpoint_cells.set_enabled(self._store, name, enabled, is_configured)

    def _must_edit_file(self, name: str) -> ConfigError:
        return ConfigError(f"{name} stands in {self._place(name)}: edit it there, and `tarry reload`")

    def replace(self, name: str, settings: Mapping[str, Any], seen: str | None = None) -> "Endpoint":
        """Gives a registered task these settings, and no other. The rest is as for `edit`."""
        from tarry.push.endpoint import endpoint_cells  # noqa: PLC0415 - as above

        return endpoint_cells.replace(
            self._store, name, settings, self._guard, self._secret_places, seen, self._may_write_places
        )

    def remove(self, name: str) -> int:
        """Removes a task; returns how many unfinished jobs it leaves. ConfigError."""
        from tarry.push.endpoint import endpoint_cells  # noqa: PLC0415 - as above

        self._catalog.load()
        if self._catalog.is_configured(name):
            raise ConfigError(f"{name} stands in {self._place(name)}: take it out there")
        waiting = endpoint_cells.remove(self._store, name)
        function = self._catalog.tasks.get(name)
        if function is not None and function.runner is None:
            # From now on the jobs are the function's, with its limits.
            self._declare_limits(self._store)
        return waiting

    def try_answer(self, name: str, answer: "HttpResponse") -> TriedAnswer:
        """What the task makes of this answer to a first attempt; UnknownTask."""
        from tarry.push.delivery.delivery_verdict import judge  # noqa: PLC0415 - as above

        task = self._catalog.find(name)
        if task is None:
            raise UnknownTask(f"no HTTP task {name}; `tarry tasks` lists them")
        verdict = judge(task.endpoint, answer, 0.0)
        outcome = type(verdict).__name__.lower()
        delay = task.endpoint.schedule.delay(1, asked=getattr(verdict, "after", None)) if outcome == "again" else None
        return TriedAnswer(outcome, verdict.reason, None if delay is None else delay / SECOND)

    def _place(self, name: str) -> str:
        return self._catalog.config().place("tasks", name)


def read_answer(data: bytes, status: int | None) -> "HttpResponse":
    """An answer to try: its body, or all of it as `curl -i` prints it. status: of a body alone; None: 200.
    TarryError."""
    from tarry.push.http.response import MOST_BODY, HttpResponse  # noqa: PLC0415 - as above

    headers: list[tuple[str, str]] = []
    if data.startswith(b"HTTP/"):
        # `curl -i` prints CRLF, and an editor may have changed that.
        head, _, data = data.replace(b"\r\n", b"\n").partition(b"\n\n")
        first, *lines = head.decode("latin-1").split("\n")
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        status = status or _status(first)
    return HttpResponse(status or 200, tuple(headers), data[:MOST_BODY], len(data) > MOST_BODY)


def _status(line: str) -> int:
    parts = line.split()
    if len(parts) < 2 or not parts[1].isdecimal() or len(parts[1]) != 3:
        raise TarryError(f"{line[:80]!r} says no status; write it as in HTTP/1.1 200 OK")
    return int(parts[1])
