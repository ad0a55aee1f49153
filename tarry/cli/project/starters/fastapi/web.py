"""The web application: it answers at once, and a job does the work."""

from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import HTMLResponse, StreamingResponse
from tarry import JobNotFound
from tarry.web import JobEvents, lifespan

from app import app, report

# worker=True: jobs run in this process. Leave it out where `tarry start` runs.
web = FastAPI(lifespan=lifespan(app, worker=True))
events = JobEvents(app)
LastEventId = Annotated[str | None, Header()]


@web.post("/reports", status_code=202)
async def order(name: str) -> dict[str, str]:
    """Enqueues a job."""
    job = await report.aenqueue(name)
    return {"id": job.id}


@web.get("/reports/{id}")
async def show(id: str) -> dict[str, Any]:
    """What became of it."""
    try:
        job = app.get(id)
        state = await job.astate()
    except (JobNotFound, ValueError) as error:
        raise HTTPException(404, str(error)) from None
    result = await job.aresult() if state == "done" else None
    return {"id": id, "state": state, "result": result}


@web.get("/reports/{id}/events")
async def follow(id: str, last_event_id: LastEventId = None) -> StreamingResponse:
    """How far it is, as it happens."""
    stream = await events.aopen(id, last_event_id)
    return StreamingResponse(stream, stream.status, stream.headers)


PAGE = """<!doctype html>
<title>Reports</title>
<button>Write a report</button>
<progress value="0"></progress> <output></output>
<script>
document.querySelector("button").onclick = async () => {
  const answer = await fetch("/reports?name=Ann", {method: "POST"})
  const url = "/reports/" + (await answer.json()).id
  const source = new EventSource(url + "/events")
  source.addEventListener("job", event => {
    const {state, progress} = JSON.parse(event.data)
    document.querySelector("progress").value = progress?.fraction ?? 0
    document.querySelector("output").value = progress?.message ?? state
  })
  source.addEventListener("end", async () => {
    source.close()
    const {state, result} = await (await fetch(url)).json()
    document.querySelector("output").value = result ?? state
  })
}
</script>"""


@web.get("/", response_class=HTMLResponse)
async def page() -> str:
    """A page with a progress bar."""
    return PAGE
