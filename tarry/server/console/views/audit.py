"""Audit: who did what, the newest first, with its filters."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tarry.operate.audit import AuditQuery, list_acts
from tarry.server.console.act import ConsoleAct
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.http.method import ApiCall

_NAMED = ("job", "who", "act", "queue", "since", "until")


@console_page("/audit", "audit.html")
def audit_page(call: ApiCall, query: AuditQuery) -> PageData:
    """The acts that match the filters."""
    page, filters = list_acts.handler(call, query), _filters(query)
    return {
        "page": page,
        "query": query,
        "filters": filters,
        "following": _address(filters | {"cursor": page.next}) if page.next else "",
        "first": _address(filters) if query.cursor else "",
    }


def _filters(query: AuditQuery) -> dict[str, Any]:
    return {name: value for name in _NAMED if (value := getattr(query, name)) not in (None, "")}


def _address(filters: Mapping[str, Any]) -> str:
    return f"/audit?{urlencode(filters)}" if filters else "/audit"


PAGES: tuple[ConsolePage, ...] = (audit_page,)
ACTS: tuple[ConsoleAct, ...] = ()
