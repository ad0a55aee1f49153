from typing import Any

from litestar import Litestar, Request, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from tarry import App
from tarry.web.litestar import TarryPlugin
from tests.frameworks.apps.tasks import declare, make_events

jobs = App()
walk = declare(jobs)
events = make_events(jobs)


@post("/jobs", status_code=202)
async def order(jobs: NamedDependency[App], gates: FromQuery[str], steps: FromQuery[int]) -> dict[str, str]:
    job = await jobs.aenqueue("walk", gates, steps)
    return {"id": job.id}


@get("/jobs/{id:str}/events")
async def follow(id: FromPath[str], request: Request[Any, Any, Any]) -> Stream:
    stream = await events.aopen(id, request.headers.get("last-event-id"))
    return Stream(stream, status_code=stream.status, headers=stream.headers)


web = Litestar([order, follow], plugins=[TarryPlugin(jobs, worker=True)])
