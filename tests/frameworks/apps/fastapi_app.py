from typing import Annotated

from fastapi import FastAPI, Header
from fastapi.responses import StreamingResponse

from tarry import App
from tarry.web import lifespan
from tests.frameworks.apps.tasks import declare, make_events

jobs = App()
walk = declare(jobs)
events = make_events(jobs)
web = FastAPI(lifespan=lifespan(jobs, worker=True))


@web.post("/jobs", status_code=202)
async def order(gates: str, steps: int) -> dict[str, str]:
    job = await walk.aenqueue(gates, steps)
    return {"id": job.id}


@web.post("/jobs/sync", status_code=202)
def order_in_a_thread(gates: str, steps: int) -> dict[str, str]:
    return {"id": walk.enqueue(gates, steps).id}


@web.get("/jobs/{id}/events")
async def follow(id: str, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
    stream = await events.aopen(id, last_event_id)
    return StreamingResponse(stream, stream.status, stream.headers)
