"""Views that enqueue a job, and answer with its id."""

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from tests.django.project import tasks


def enqueue(request: HttpRequest) -> HttpResponse:
    result = tasks.echo.enqueue(1)
    if "refuse" in request.GET:
        raise PermissionDenied
    return HttpResponse(result.id)


async def aenqueue(request: HttpRequest) -> HttpResponse:
    result = await tasks.aecho.aenqueue(1)
    return HttpResponse((await tasks.aecho.aget_result(result.id)).id)
