"""A web application that answers at once and does the work later: `python -m examples.web`, then

    curl -X POST 'localhost:8000/reports?customer=ann'         # answers with the job's id
    curl localhost:8000/reports/ID                             # how far it is, and what came of it

The worker is in the same process, for as long as the application lives. To give it processes of its own, leave out the
`lifespan` and run `tarry -a examples.web:jobs start` beside it.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException

from tarry import App, JobNotFound, current_job

jobs = App()


@jobs.task(limit_by=lambda customer: customer, limit=1, timeout=60)
async def report(customer: str) -> dict[str, int]:
    """Adds up a customer's pages, one report at a time for each customer."""
    pages = 0
    for step in range(5):
        current_job().progress(step / 5, f"page {step + 1}")
        await asyncio.sleep(0.1)  # where a real one asks a database
        pages += len(customer) * 100
    return {"pages": pages}


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    """Jobs run while the application does; at its end, what runs is finished first."""
    async with jobs.running():
        yield


web = FastAPI(lifespan=lifespan)


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


if __name__ == "__main__":
    uvicorn.run(web, port=int(os.environ.get("PORT", "8000")))
