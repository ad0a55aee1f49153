from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from tarry import App
from tarry.web import lifespan
from tests.frameworks.apps.tasks import declare, make_events

jobs = App()
walk = declare(jobs)
events = make_events(jobs)


async def order(request: Request) -> JSONResponse:
    asked = request.query_params
    job = await walk.aenqueue(asked["gates"], int(asked["steps"]))
    return JSONResponse({"id": job.id}, 202)


async def follow(request: Request) -> StreamingResponse:
    stream = await events.aopen(request.path_params["id"], request.headers.get("last-event-id"))
    return StreamingResponse(stream, stream.status, stream.headers)


routes = [Route("/jobs", order, methods=["POST"]), Route("/jobs/{id}/events", follow)]
web = Starlette(routes=routes, lifespan=lifespan(jobs, worker=True))
