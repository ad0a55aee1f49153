from typing import Annotated

from litestar import Litestar, get, post
from litestar.params import Parameter
from litestar.response import Stream

from tarry import App
from tarry.web.litestar import TarryPlugin
from tests.frameworks.apps.tasks import declare, make_events

jobs = App()
walk = declare(jobs)
events = make_events(jobs)
LastEventId = Annotated[str | None, Parameter(header="last-event-id")]


@post("/jobs", status_code=202)
async def order(jobs: App, gates: str, steps: int) -> dict[str, str]:
    job = await jobs.aenqueue("walk", gates, steps)
    return {"id": job.id}


@get("/jobs/{id:str}/events")
async def follow(id: str, last_event_id: LastEventId = None) -> Stream:
    stream = await events.aopen(id, last_event_id)
    return Stream(stream, status_code=stream.status, headers=stream.headers)


web = Litestar([order, follow], plugins=[TarryPlugin(jobs, worker=True)])
