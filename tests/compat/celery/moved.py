"""Tasks of an app that uses more of Celery: links, headers, classes of its own, tasks of a schedule with options."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from tarry.compat.celery import Celery, Task, current_task, shared_task
from tarry.compat.celery.exceptions import SoftTimeLimitExceeded

seen: list[object] = []


class Traced(Task):
    """An app's own class: with an option of its own, and headers that it adds to each call."""

    level = "info"

    def __init__(self, *args, **kwargs):
        self.upper = self.level.upper()
        super().__init__(*args, **kwargs)

    def __call__(self, *args, **kwargs):
        seen.append((self.upper, self.request.get("trace")))
        return super().__call__(*args, **kwargs)


class TracingCelery(Celery):
    """Adds a header to each call, as apps do that follow a request."""

    def __init__(self, *args, **kwargs):
        kwargs["task_cls"] = Traced
        super().__init__(*args, **kwargs)

    def send_task(self, name, args=None, kwargs=None, *more, **options):
        options["headers"] = {"trace": "t1", **(options.get("headers") or {})}
        return super().send_task(name, args, kwargs, *more, **options)


app = TracingCelery("moved", set_as_current=False)


@app.task(level="debug")
def traced():
    return None


plain = Celery("plain", set_as_current=False)


@plain.task
def add(x, y):
    return x + y


@plain.task
def note(value, *args):
    seen.append((value, *args))


@plain.task
def fails(text):
    raise ValueError(text)


class Raising(Task):
    """A class whose hook is broken."""

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        raise RuntimeError("a hook")


@plain.task(base=Raising)
def fails_twice():
    raise ValueError("no")


@plain.task
def failed_with(request, exc, traceback, mark=""):
    seen.append((request.task, request.args, str(exc), "ValueError" in traceback, mark))


@plain.task
def failed_id(task_id):
    seen.append(task_id)


@plain.task(bind=True, max_retries=1)
def once_more(self):
    if self.request.retries == 0:
        raise self.retry(exc=ConnectionError("not yet"), args=self.request.args, kwargs=self.request.kwargs)
    return "done"


@plain.task(bind=True)
def headers(self):
    return [self.request.get("source"), self.request.headers, self.request.is_eager]


@plain.task
def which():
    return [current_task.name, bool(current_task), current_task.request.retries]


@plain.task(autoretry_for=(Exception,), max_retries=1, default_retry_delay=5)
def slow():
    seen.append("slow")
    raise SoftTimeLimitExceeded


@shared_task(ignore_result=True)
def shared(x):
    return x


class ByClass(Task):
    """A task as a class, with a name of its own."""

    name = "tests.by_class"

    def run(self, x):
        return x * 2


by_class = plain.register_task(ByClass())
