"""A typical Celery app, as its users write them; only its imports name tarry."""

# mypy: disable-error-code="no-untyped-def"

from datetime import timedelta
from decimal import Decimal

from tarry.compat.celery import Celery, Task, crontab, get_task_logger, shared_task
from tarry.compat.celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

logger = get_task_logger(__name__)
app = Celery("typical")
app.conf.update(
    task_routes={"tests.compat.celery.typical.mail_*": {"queue": "mail"}, "*.routed": "special"},
    task_default_queue="celery",
    timezone="Europe/Paris",
    beat_schedule={
        "every-night": {"task": "tests.compat.celery.typical.sweep", "schedule": crontab(hour=3, minute=30)},
        "often": {"task": "tests.compat.celery.typical.add", "schedule": 30.0, "args": (1, 2)},
        "delta": {"task": "tests.compat.celery.typical.sweep", "schedule": timedelta(minutes=5)},
    },
)
seen: list[object] = []


class Recording(Task):
    """A base class with hooks."""

    def before_start(self, task_id, args, kwargs):
        seen.append(("before", args))

    def on_success(self, retval, task_id, args, kwargs):
        seen.append(("success", retval, args))

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        seen.append(("failure", str(exc), "ValueError" in str(einfo)))

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        seen.append(("retry", str(exc)))

    def after_return(self, status, retval, task_id, args, kwargs, einfo):
        seen.append(("after", status))


class InContext(Task):
    """As Flask's documentation has it."""

    def __call__(self, *args, **kwargs):
        seen.append("context")
        return self.run(*args, **kwargs)


@app.task(base=InContext)
def in_context(x):
    return x


@app.task
def add(x: int, y: int):
    return x + y


@app.task
def join(values, sep="-"):
    return sep.join(map(str, values))


@shared_task
def sweep():
    return None


@app.task(bind=True, max_retries=2, default_retry_delay=60)
def flaky(self, url):
    seen.append(self.request.retries)
    try:
        raise ConnectionError(url)
    except ConnectionError as error:
        raise self.retry(exc=error)  # noqa: B904 - as its users write it


@app.task(bind=True, max_retries=1)
def gives_up(self):
    self.retry(countdown=5)


@shared_task(autoretry_for=(ConnectionError,), retry_backoff=5, retry_jitter=False, max_retries=3)
def fetch(url):
    seen.append(url)
    raise ConnectionError(url)


@shared_task(
    autoretry_for=(Exception,), dont_autoretry_for=(KeyError,), retry_kwargs={"countdown": 7, "max_retries": 1}
)
def picky(kind):
    raise {"key": KeyError, "value": ValueError}[kind](kind)


@app.task(base=Recording, bind=True, max_retries=1)
def recorded(self, number):
    if number < 0 and not self.request.retries:
        raise self.retry(exc=ValueError("less than nothing"), countdown=1)
    if number < 0:
        raise ValueError("less than nothing")
    return Decimal(number)


@app.task
def mail_out(to):
    return to


@app.task(queue="own")
def routed():
    return None


@app.task(bind=True)
def who(self, *args, **kwargs):
    request = self.request
    return [request.id, request.retries, list(request.args), request.kwargs, request.delivery_info["routing_key"]]


@app.task
def fails(text):
    raise ValueError(text)


@app.task(soft_time_limit=10, time_limit=20)
def slow():
    try:
        raise SoftTimeLimitExceeded
    except SoftTimeLimitExceeded:
        return "cleaned up"


@app.task(rate_limit="10/m")
def limited():
    return None


@app.task
def ignored():
    raise Ignore


@app.task
def rejected():
    raise Reject("no", requeue=False)


@app.task
def same(value):
    return value


@app.task
def model():
    return object()
