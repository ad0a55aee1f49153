"""Methods for those who watch over servers and work: is it alive, is it ready, what does it do?"""

import logging

from prometheus_client.exposition import choose_encoder
from starlette.responses import PlainTextResponse, Response

from tarry.door.figures import Scrape
from tarry.door.http.method import ApiCall, ApiMethod, api_method
from tarry.door.identity.access import Scope
from tarry.errors import StoreError

log = logging.getLogger("tarry.server")

PLAIN = "text/plain"


@api_method("GET /healthz", None, tag="health", media_type=PLAIN)
async def healthz(call: ApiCall) -> Response:
    """Says that the process lives, whatever the store does."""
    return PlainTextResponse("ok\n")


@api_method("GET /readyz", None, tag="health", media_type=PLAIN)
async def readyz(call: ApiCall) -> Response:
    """Says whether requests can be served: 503 while the store does not answer within a second, or the server ends."""
    service = call.service
    ending = "this server is ending" if service.is_draining or service.is_closed else ""
    trouble = ending or await service.probe.trouble()
    return PlainTextResponse(f"{trouble or 'ok'}\n", 503 if trouble else 200)


@api_method("GET /metrics", Scope.READ, tag="health", media_type=PLAIN)
def metrics(call: ApiCall) -> Response:
    """Gives figures to Prometheus, as OpenMetrics where the header Accept asks for it.

    The figures of the store are at most five seconds old. Those of the server are of the process that answers: the
    label `process` tells processes apart."""
    encode, media_type = choose_encoder(call.request.headers.get("accept", ""))
    service = call.service
    try:
        look, totals = service.look.read(), service.history.totals()
    except StoreError as error:
        # The figures of the server are wanted then more than ever.
        log.warning("/metrics is without the figures of the store: %s", error)
        look, totals = None, {}
    return Response(encode(Scrape(service.figures, look, totals, call.allows)), media_type=media_type)


METHODS: tuple[ApiMethod, ...] = (healthz, readyz, metrics)
