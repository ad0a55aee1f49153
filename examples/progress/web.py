"""The whole application: a task that tells how far it is, three handlers, a page.

The worker is in the same process, for as long as the application lives. To give it processes of its own, take
`worker=True` away and run `tarry -a examples.progress.web:jobs start` beside it.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import FileResponse, StreamingResponse

from tarry import App, JobNotFound, current_job
from tarry.web import JobEvents, lifespan

jobs = App()


@jobs.task(limit_by=lambda customer: customer, limit=1, timeout=60)
async def report(customer: str) -> dict[str, int]:
    """Adds up a customer's pages, one report at a time for each customer."""
    pages = 0
    for page in range(5):
        current_job().progress(page / 5, f"page {page + 1}")
        await asyncio.sleep(0.1)  # where a real one asks a database
        pages += len(customer) * 100
    return {"pages": pages}


web = FastAPI(lifespan=lifespan(jobs, worker=True))
events = JobEvents(jobs)


@web.get("/")
async def page() -> FileResponse:
    """A page with a progress bar."""
    return FileResponse(Path(__file__).with_name("page.html"))


@web.post("/reports", status_code=202)
async def order(customer: str) -> dict[str, str]:
    """Orders a report. Sent twice while the first is not done, it is one."""
    job = await report.using(key=customer).aenqueue(customer)
    return {"id": job.id}


@web.get("/reports/{id}")
async def look(id: str) -> dict[str, Any]:
    """How it stands."""
    try:
        job = jobs.get(id)
        record = await job.arecord()
    except (JobNotFound, ValueError) as error:
        raise HTTPException(404, str(error)) from None
    said = await job.aprogress()
    progress = said and {"fraction": said.fraction, "message": said.message}
    result = await job.aresult(0) if record.state == "done" else None
    return {"id": id, "state": record.state, "progress": progress, "result": result}


@web.get("/reports/{id}/events")
async def follow(id: str, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
    """How far it is, as it happens: server-sent events, which a browser takes up again by itself."""
    stream = await events.aopen(id, last_event_id)
    return StreamingResponse(stream, stream.status, stream.headers)
