"""Lines of beat: in the settings, and added when the app is ready."""

# mypy: disable-error-code="no-untyped-def"

from datetime import date

from tarry.compat.celery import Celery, crontab

app = Celery("scheduled", set_as_current=False)
app.conf.beat_schedule = {
    "plain": {"task": "scheduled.report", "schedule": crontab(minute="*/5"), "args": (date(2026, 1, 2),)},
    "mailed": {
        "task": "scheduled.report",
        "schedule": 60,
        "args": (1,),
        "kwargs": {"mark": "m"},
        "options": {"queue": "mail", "expires": 30, "priority": 4},
    },
    "elsewhere": {"task": "elsewhere.sweep", "schedule": 60, "options": {"queue": "far"}},
}
seen: list[object] = []


@app.task(name="scheduled.report")
def report(what, mark=""):
    seen.append((what, mark))


@app.on_after_configure.connect
def add_lines(sender, **kwargs):
    sender.add_periodic_task(120.0, report.s("added").set(queue="own"), name="every two minutes")
