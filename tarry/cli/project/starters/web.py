"""The web application: it answers at once, and a job does the work. Try it:

uvicorn web:web
curl -X POST 'localhost:8000/hello?name=Ann'     # answers with the job's id
curl localhost:8000/jobs/ID                      # its state, its progress, its result
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from tarry import JobNotFound

from app import app, hello


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    """Jobs run in this process. With `tarry start` beside it, leave this out."""
    async with app.running():
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/hello", status_code=202)
async def say_hello(name: str) -> dict[str, str]:
    """Enqueues a job."""
    job = await hello.aenqueue(name)
    return {"id": job.id}


@web.get("/jobs/{id}")
async def show_job(id: str) -> dict[str, Any]:
    """How far a job is."""
    try:
        job = app.get(id)
        record = await job.arecord()
        progress = await job.aprogress()
    except (JobNotFound, ValueError) as error:
        raise HTTPException(404, str(error)) from None
    result = await job.aresult() if record.state == "done" else None
    done = progress and progress.fraction
    return {"id": id, "state": record.state, "progress": done, "result": result}
