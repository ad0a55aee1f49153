from typing import Any

from flask import Flask, Response, current_app, request

from tarry.web.flask import Tarry
from tests.frameworks.apps.tasks import declare, make_events

jobs = Tarry()
walk = declare(jobs)
events = make_events(jobs)


@jobs.task
def name_of_application() -> str:
    return str(current_app.config["NAME"])


@jobs.task
async def aname_of_application() -> str:
    return str(current_app.config["NAME"])


def create_app(**settings: Any) -> Flask:
    web = Flask(__name__)
    web.config.from_mapping(NAME="shop", TARRY_STORE="sqlite:///flask.db", **settings)
    jobs.init_app(web)

    @web.post("/jobs")
    def order() -> tuple[dict[str, str], int]:
        job = walk.enqueue(request.args["gates"], int(request.args["steps"]))
        return {"id": job.id}, 202

    @web.get("/jobs/<id>/events")
    def follow(id: str) -> Response:
        stream = events.open(id, request.headers.get("Last-Event-ID"))
        return Response(stream, stream.status, stream.headers)

    return web
