"""Settings: where they come from, what they do, and what is said of those that do nothing."""

import importlib
import subprocess
import sys
import textwrap
import types
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tarry.compat.celery import Celery, CeleryDifference, crontab
from tarry.compat.celery.calling import find_route
from tarry.compat.celery.differences import CeleryNotSupported, forget_warnings
from tarry.compat.celery.schedules import as_cron, schedule
from tarry.compat.celery.settings import CelerySettings


@pytest.fixture(autouse=True)
def fresh() -> None:
    forget_warnings()


def make() -> CelerySettings:
    return CelerySettings(lambda: None)


def test_a_setting_by_attribute_by_name_and_by_its_old_name() -> None:
    conf = make()
    conf.task_default_queue = "a"
    assert conf["task_default_queue"] == "a"
    conf.update(CELERY_DEFAULT_QUEUE="b", timezone="UTC")
    assert (conf.task_default_queue, conf.timezone, conf.task_routes) == ("b", "UTC", None)
    with pytest.raises(AttributeError):
        _ = conf.no_such_thing


def test_a_line_that_is_added_to_the_schedule_is_of_this_app_alone() -> None:
    one, other = make(), make()
    one.beat_schedule["often"] = {"task": "a", "schedule": 30}
    assert (list(one["beat_schedule"]), other.beat_schedule) == (["often"], {})


class FromDjango:
    CELERY_TASK_DEFAULT_QUEUE = "django"
    CELERY_TIMEZONE = "Asia/Tokyo"
    DEBUG = True


@pytest.mark.parametrize(
    ("source", "namespace"),
    [(FromDjango, "CELERY"), ({"task_default_queue": "django", "timezone": "Asia/Tokyo", "debug": 1}, "")],
)
def test_settings_of_an_object(source: Any, namespace: str) -> None:
    conf = make()
    conf.load_later(source, namespace)
    assert (conf.task_default_queue, conf.timezone) == ("django", "Asia/Tokyo")


def test_settings_of_a_module_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("celeryconfig")
    module.task_default_queue, module.Inner = "module", FromDjango
    monkeypatch.setitem(sys.modules, "celeryconfig", module)
    for name, namespace, queue in (("celeryconfig", "", "module"), ("celeryconfig:Inner", "CELERY", "django")):
        conf = make()
        conf.load_later(name, namespace)
        assert conf.task_default_queue == queue


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("broker_url", "redis://", "tarry's store"),
        ("worker_concurrency", 4, r"\[pools.default\]"),
        ("task_serializer", "pickle", "JSON only"),
        ("accept_content", ["json", "pickle"], "JSON only"),
        ("worker_pool", "gevent", "worker_pool has no effect"),
    ],
)
def test_what_has_no_effect_is_told_once(name: str, value: object, told: str) -> None:
    conf = make()
    with pytest.warns(CeleryDifference, match=told) as found:
        conf[name] = value
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        conf[name] = value
    assert found[0].filename == __file__, "it names the line of the app"


@pytest.mark.parametrize("name", ["task_acks_late", "task_track_started", "worker_prefetch_multiplier"])
def test_what_tarry_does_anyway_is_not_told(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make()[name] = 1


@pytest.mark.parametrize(
    ("when", "expression"),
    [
        (crontab(), "* * * * *"),
        (crontab(minute="*/15", hour="8-17", day_of_week="mon-fri"), "*/15 8-17 * * mon-fri"),
        (crontab(0, 0, day_of_month="1"), "0 0 1 * *"),
        (crontab(minute={0, 30}, hour=[8, 9]), "0,30 8-9 * * *"),
        (crontab(hour="22-2", day_of_week="sunday"), "* 0-2,22-23 * * sun"),
        (crontab.from_string("1 2 3 4 *"), "1 2 3 apr *"),
        (10, "@every 10s"),
        (timedelta(days=30), "@every 2592000s"),
        (schedule(2.5), "@every 2500ms"),
    ],
)
def test_schedules(when: Any, expression: str) -> None:
    assert as_cron("x", when, (), {}, "UTC").expression == expression


@pytest.mark.parametrize("when", [object(), 0.1])
def test_schedules_that_cannot_be(when: Any) -> None:
    with pytest.raises(CeleryNotSupported):
        as_cron("x", when, (), {}, "UTC")


def test_modules_are_imported_for_a_worker_and_celery_is_not(tmp_path: Path) -> None:
    package = tmp_path / "proj"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "celery.py").write_text(
        textwrap.dedent("""
        from tarry.compat.celery import Celery
        app = Celery("proj", include=["proj.more"])
        app.config_from_object("proj.config")
        app.autodiscover_tasks(["proj"])
        """)
    )
    (package / "config.py").write_text("task_default_queue = 'q'\n")
    (package / "tasks.py").write_text(
        "from tarry.compat.celery import shared_task\n@shared_task\ndef one(x):\n    return x + 1\n"
    )
    (package / "more.py").write_text("from proj.celery import app\n@app.task\ndef two(x):\n    return x * 2\n")
    code = textwrap.dedent("""
        import sys
        from proj.celery import app
        first, second = app.send_task("proj.tasks.one", (1,)), app.send_task("proj.more.two", (4,), queue="other")
        app.drain()
        print(first.get(timeout=5), second.get(timeout=5), app.find("proj.tasks.one").queue)
        print([name for name in sys.modules if name.split(".")[0] in ("celery", "kombu")])
        """)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("2 8 q\n[]\n", "")


def test_an_app_of_its_own_settings() -> None:
    app = Celery("x", timezone="UTC", task_default_queue="y", store="memory:", set_as_current=False)
    assert (app.conf.timezone, app.conf.task_default_queue) == ("UTC", "y")


TWO_APPS = """
from tarry.compat.celery import Celery, shared_task
first, second = Celery("first"), Celery("second")

@first.task
def of_first():
    return of_first.app.main

@shared_task
def of_all():
    return of_all.app.main

@first.task(shared=False)
def only_first():
    return None
"""


def test_a_task_of_one_app_runs_in_a_worker_of_another(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO_APPS)
    (tmp_path / "tarry.toml").write_text('app = "two:second"\nstore = "sqlite:///here.db"\n')
    code = textwrap.dedent("""
        from two import first, second, of_first, of_all, only_first
        one, all = of_first.delay(), of_all.delay()
        print(second.drain(), one.get(timeout=5), all.get(timeout=5), "two.only_first" in second.tasks)
        """)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("2 first second False\n", "")


IMPORTS = """
from celery import Celery, Task, chain, chord, current_app, current_task, group, shared_task, signature, states
from celery.app.task import Task as SameTask
from celery.canvas import Signature
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry, SoftTimeLimitExceeded
from celery.result import AsyncResult, allow_join_result
from celery.schedules import crontab, schedule
from celery.signals import task_failure, worker_process_init
from celery.utils.log import get_task_logger
print(SameTask is Task and issubclass(DjangoTask, Task), get_task_logger("x").name, states.SUCCESS)
"""


def test_each_usual_import_works_once_its_first_word_is_changed() -> None:
    code = IMPORTS.replace("from celery", "from tarry.compat.celery")
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=250, check=False
    )
    assert (ran.stdout, ran.stderr) == ("True x SUCCESS\n", "")


DJANGO_APP = """
import os
from tarry.compat.celery import Celery
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
app = Celery("site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""
DJANGO_SETTINGS = """
INSTALLED_APPS = ["django.contrib.contenttypes", "news"]
SECRET_KEY = "x"
CELERY_TASK_DEFAULT_QUEUE = "site"
CELERY_TIMEZONE = "Asia/Tokyo"
CELERY_BEAT_SCHEDULE = {"often": {"task": "news.tasks.count", "schedule": 30}}
"""
DJANGO_TASKS = """
from django.contrib.contenttypes.models import ContentType
from tarry.compat.celery import shared_task

@shared_task
def count():
    return ContentType._meta.label
"""


def test_tasks_of_djangos_apps_are_found_and_django_is_set_up_for_them(tmp_path: Path) -> None:
    (tmp_path / "site_celery.py").write_text(DJANGO_APP)
    (tmp_path / "site_settings.py").write_text(DJANGO_SETTINGS)
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "__init__.py").write_text("")
    (tmp_path / "news" / "tasks.py").write_text(DJANGO_TASKS)
    code = textwrap.dedent("""
        from site_celery import app
        result = app.send_task("news.tasks.count")
        app.drain()
        print(result.get(timeout=5), result.queue, [line.zone for line in app.tasks["news.tasks.count"].schedules])
        """)
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False
    )
    assert (ran.stdout, ran.stderr) == ("contenttypes.ContentType site ['Asia/Tokyo']\n", "")


def test_a_queue_of_kombu_in_the_settings_leads_by_its_routing_key() -> None:
    kombu = importlib.import_module("tarry.compat.celery.kombu")
    app, exchange = Celery("shop", store="memory://", set_as_current=False), kombu.Exchange("shop", type="direct")
    with pytest.warns(CeleryDifference, match="task_queues"):
        app.conf.task_queues = (kombu.Queue("mail", exchange, routing_key="shop.mail", durable=True),)
    app.conf.task_routes = {"shop.send": {"routing_key": "shop.mail"}}
    assert find_route(app.conf, "shop.send") == {"routing_key": "shop.mail", "queue": "mail"}


def test_without_an_app_the_error_says_what_to_import() -> None:
    code = "from tarry.compat.celery import current_app\ncurrent_app.conf"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)
    assert "ConfigError: there is no app yet: import the module" in ran.stderr
