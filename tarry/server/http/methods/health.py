"""Methods for those who watch over servers and work: is it alive, is it ready, what does it do?"""

from starlette.responses import PlainTextResponse, Response

from tarry.metrics.scrape import Scrape
from tarry.operate.access import Scope
from tarry.operate.method import methods_of
from tarry.server.http.method import ApiCall, api_method

PLAIN = "text/plain"


@api_method("GET /healthz", None, tag="health", media_type=PLAIN, is_open=True)
async def healthz(call: ApiCall) -> Response:
    """Says that the process lives, whatever the store does."""
    return PlainTextResponse("ok\n")


@api_method("GET /readyz", None, tag="health", media_type=PLAIN, is_open=True)
async def readyz(call: ApiCall) -> Response:
    """Says whether requests can be served: 503 while the store does not answer within a second, where jobs cannot be
    taken any more, or if the server ends."""
    service = call.service
    ending = "this server is ending" if service.is_draining or service.is_closed else ""
    broken = "jobs cannot be taken any more: restart this server" if service.is_broken else ""
    trouble = ending or broken or await service.probe.trouble()
    return PlainTextResponse(f"{trouble or 'ok'}\n", 503 if trouble else 200)


@api_method("GET /metrics", Scope.READ, tag="health", media_type=PLAIN)
def metrics(call: ApiCall) -> Response:
    """Gives figures to Prometheus, as OpenMetrics where the header Accept asks for it.

    Queues, jobs, schedules and endpoints are those of the store: every server of every host shows the same, at most
    five seconds old. While the store does not answer within five seconds they are left out, and `tarry_store_up` is 0.

    Workers and processes are those of this host; without a master there are none. Requests and connections are those
    of the process that answers: the label `process` tells processes apart.

    `[metrics]` serves the same from the keeper of each host, without a server."""
    service = call.service
    scrape = Scrape(service.figures, service.reader.read(), service.host(), allows=call.allows)
    text, media_type = scrape.encode(call.request.headers.get("accept", ""))
    return Response(text, media_type=media_type)


METHODS = methods_of(__name__)
