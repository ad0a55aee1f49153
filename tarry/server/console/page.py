"""One page of the console, described once: its route, its template, and what it shows.

    @console_page("/queues/{queue}", "queue.html")
    def queue_page(call: ApiCall, path: QueuePath) -> PageData:
        return {"queue": get_queue.handler(call, path)}

`path` and `query` are read as those of the API's methods are. A page may block: it runs in a thread of the service.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tarry.operate.access import Scope
from tarry.operate.method import Method
from tarry.server.http.method import ApiCall, api_method

PageData = Mapping[str, Any]
"""What a template shows, by name."""


class ConsolePage(Struct, frozen=True):
    """A page. method: how its address is read, and what it needs; never a part of the API itself."""

    method: Method
    template: str

    @property
    def route(self) -> str:
        """Its path, below that of the console."""
        return self.method.route


def console_page(route: str, template: str) -> Callable[[Callable[..., PageData]], ConsolePage]:
    """Makes a page of a function that returns what its template shows."""

    def make(handler: Callable[..., PageData]) -> ConsolePage:
        # With its own annotations, by which the parts of the address are read.
        @functools.wraps(handler)
        def show(call: ApiCall, **parts: Any) -> PageData:
            call.is_page = True
            return handler(call, **parts)

        return ConsolePage(api_method(f"GET {route}", Scope.READ, tag="console")(show), template)

    return make
