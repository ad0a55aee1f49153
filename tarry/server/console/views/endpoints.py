"""The endpoints of HTTP tasks: their health, what they answered, and the acts that mend them."""

from tarry.operate.endpoints import (
    EndpointPath,
    close_endpoint,
    get_endpoint,
    list_endpoints,
    pause_endpoint,
    probe_endpoint,
    replay_endpoint,
    resume_endpoint,
)
from tarry.server.console.act import ConsoleAct
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.http.method import ApiCall


@console_page("/endpoints", "endpoints.html")
def endpoints_page(call: ApiCall) -> PageData:
    """All endpoints."""
    return {"endpoints": list_endpoints.handler(call).endpoints}


@console_page("/endpoints/{task}", "endpoint.html")
def endpoint_page(call: ApiCall, path: EndpointPath) -> PageData:
    """One endpoint: its health, its answers by status, and its last exchanges."""
    found = get_endpoint.handler(call, path)
    rates = [(status, found.hour.get(status, 0), found.day[status]) for status in sorted(found.day)]
    return {
        "endpoint": found.endpoint,
        "rates": rates,
        "all_of_hour": sum(found.hour.values()),
        "all_of_day": sum(found.day.values()),
        "is_counted": found.is_counted,
        "exchanges": found.exchanges,
    }


PAGES: tuple[ConsolePage, ...] = (endpoints_page, endpoint_page)
ACTS = (
    ConsoleAct(pause_endpoint, "Deliveries of {task} are paused: its jobs wait."),
    ConsoleAct(resume_endpoint, "Deliveries of {task} are resumed."),
    ConsoleAct(close_endpoint, "The circuit is closed: requests are sent again."),
    ConsoleAct(probe_endpoint, "The endpoint is tried with the next job."),
    ConsoleAct(replay_endpoint, "The operation has begun.", lambda one: f"/operations/{one.id}"),
)
