"""The contract of Django's tasks, as every backend has to keep it."""

import asyncio
import importlib
import json
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from asgiref.sync import async_to_sync
from django.test import override_settings
from django.utils import timezone

from tarry.django import compat
from tarry.django.codec import DjangoCodec
from tarry.django.django_task import DjangoTask
from tarry.errors import ArgumentError, PayloadLost
from tarry.store.rules.base import Query
from tests.django.project import tasks
from tests.django.suite.base import StoreCase, heard

READY, DONE, FAILED = "READY", "SUCCESSFUL", "FAILED"


class Contract(StoreCase):
    def test_all_four_are_supported(self) -> None:
        backend = self.backend
        assert backend.supports_defer
        assert backend.supports_async_task
        assert backend.supports_get_result
        assert backend.supports_priority
        assert isinstance(tasks.echo, DjangoTask)

    def test_a_new_result(self) -> None:
        before = timezone.now()
        result = tasks.echo.enqueue(1, two=(2, 3))
        assert (result.status, result.args, result.kwargs) == (READY, [1], {"two": [2, 3]})
        assert before - timedelta(milliseconds=1) <= result.enqueued_at <= timezone.now()
        assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
        assert (result.errors, result.worker_ids, result.attempts, result.is_finished) == ([], [], 0, False)
        assert (result.task, result.backend) == (tasks.echo, "default")
        assert isinstance(result.id, str)
        assert len(result.id) <= 64
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value

    def test_nan_and_infinity_are_refused(self) -> None:
        for value in (math.nan, [None, {"a": math.inf}]):
            with self.assertRaisesMessage(ArgumentError, "JSON has no nan"):
                tasks.echo.enqueue(value)
            with self.assertRaisesMessage(ArgumentError, "JSON has no nan"):
                tasks.echo.enqueue(1, two=value)
            with self.assertRaisesMessage(ValueError, "JSON has no nan"):
                DjangoCodec("echo", tasks.echo.func).encode_result(value)

    def test_a_job_that_is_done(self) -> None:
        for task in (tasks.echo, tasks.aecho):
            result = self.done(task, 1, two=3)
            assert (result.status, result.return_value) == (DONE, [[1], {"two": 3}])
            assert result.is_finished
            assert result.attempts == 1
            assert result.worker_ids[0]
            assert result.enqueued_at <= result.started_at + timedelta(milliseconds=1)
            assert result.started_at == result.last_attempted_at <= result.finished_at
            assert result.errors == []

    def test_a_job_that_failed(self) -> None:
        for task, kind, function in ((tasks.fail, tasks.Trouble, "in fail"), (tasks.afail, ValueError, "in afail")):
            result = self.done(task, "broken")
            assert (result.status, result.attempts, len(result.errors)) == (FAILED, 1, 1)
            assert result.errors[0].exception_class is kind
            assert "broken" in result.errors[0].traceback
            assert function in result.errors[0].traceback
            assert result.finished_at >= result.started_at
            with self.assertRaisesMessage(ValueError, "Task failed"):
                _ = result.return_value

    def test_a_result_that_is_no_json(self) -> None:
        result = self.done(tasks.lock)
        assert (result.status, result.errors[0].exception_class) == (FAILED, TypeError)

    def test_arguments_that_are_no_json(self) -> None:
        for wrong in (object(), {1, 2}, datetime.now(UTC)):
            with self.assertRaises(TypeError):
                tasks.echo.enqueue(wrong)
        assert not self.app.client.store.counts()

    def test_arguments_come_as_json_has_them(self) -> None:
        result = self.done(tasks.echo, (1, 2), b"text", none=None, deep={"a": [True, 1.5]})
        assert result.return_value == [[[1, 2], "text"], {"none": None, "deep": {"a": [True, 1.5]}}]
        assert json.dumps(result.args) == '[[1, 2], "text"]'

    def test_names_of_arguments_may_be_those_of_the_backend(self) -> None:
        result = self.done(tasks.echo, task=1, args=2, kwargs=3, context=5)
        assert result.return_value == [[], {"task": 1, "args": 2, "kwargs": 3, "context": 5}]

    def test_wrong_arguments_fail_in_the_worker(self) -> None:
        result = self.done(tasks.mail)
        assert (result.status, result.errors[0].exception_class) == (FAILED, TypeError)

    def test_the_context(self) -> None:
        result = self.done(tasks.attempt, more=4)
        assert result.return_value == [1, result.id, 1, 4]
        assert self.done(tasks.aattempt).return_value == 1

    def test_a_result_is_found_by_its_id(self) -> None:
        result = self.done(tasks.echo, 5)
        for found in (self.backend.get_result(result.id), tasks.echo.get_result(result.id)):
            assert (found.id, found.return_value, found.args) == (result.id, [[5], {}], [5])
            assert found.task.func == tasks.echo.func
            assert found == result

    def test_a_new_result_is_the_one_that_is_found(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        for task in (tasks.echo, tasks.aecho, tasks.mail):
            result = task.enqueue("ann")
            assert self.backend.get_result(result.id) == result
        assert tasks.echo.using(run_after=later).enqueue().enqueued_at < later

    def test_no_result(self) -> None:
        for id in ("", "123", "nonsense", "01999999-0000-7000-8000-000000000000", "é" * 64):
            with self.assertRaises(compat.TaskResultDoesNotExist):
                self.backend.get_result(id)

    def test_the_result_of_another_task(self) -> None:
        result = tasks.echo.enqueue()
        mismatch = importlib.import_module(f"{compat.PACKAGE}.exceptions").TaskResultMismatch
        with self.assertRaises(mismatch):
            tasks.mail.get_result(result.id)
        with self.assertRaises(mismatch):
            asyncio.run(tasks.mail.aget_result(result.id))

    def test_priorities(self) -> None:
        for priority in (0, -100, 100, -1, 1):
            tasks.echo.using(priority=priority).enqueue()
        assert sorted(job.priority for job in self.app.client.store.find(Query(limit=9))) == [-100, -1, 0, 1, 100]
        wrong: Any
        for wrong in (101, -101, 1.5):
            with self.assertRaises(compat.InvalidTask):
                tasks.echo.using(priority=wrong)

    def test_higher_priorities_come_first(self) -> None:
        started: list[Any] = []

        def note(sender: Any, task_result: Any, **more: Any) -> None:
            started.extend(task_result.args)

        for priority in (1, 90, 5, 100):
            tasks.echo.using(priority=priority).enqueue(priority)
        compat.task_started.connect(note)
        self.run_jobs()
        compat.task_started.disconnect(note)
        assert started == [100, 90, 5, 1]

    def test_queues(self) -> None:
        assert self.done(tasks.mail, "ann").return_value == "ann"
        assert self.backend.get_result(tasks.mail.enqueue("bob").id).task.queue_name == "mail"
        with self.assertRaises(compat.InvalidTask):
            tasks.mail.using(queue_name="nowhere")

    def test_run_after(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        result = tasks.echo.using(run_after=later).enqueue()
        self.run_jobs()
        result.refresh()
        assert result.status == READY
        restored = self.backend.get_result(result.id).task.run_after
        assert abs(restored - later) < timedelta(seconds=1)
        past = tasks.echo.using(run_after=timezone.now() - timedelta(days=1))
        assert self.done(past).status == DONE
        with self.assertRaises(compat.InvalidTask):
            tasks.echo.using(run_after=datetime(2030, 1, 1))

    def test_invalid_tasks(self) -> None:
        def inner() -> None: ...

        for wrong in (inner, lambda: None):
            with self.assertRaises(compat.InvalidTask):
                DjangoTask(func=wrong)
        with self.assertRaises(compat.InvalidTask):
            DjangoTask(func=tasks.plain, takes_context=True)

    def test_a_task_that_workers_cannot_find_is_refused(self) -> None:
        with self.assertRaisesMessage(compat.InvalidTask, "write @task above the function"):
            tasks.hidden.enqueue()

    def test_signals(self) -> None:
        for ok, bad, kind in ((tasks.echo, tasks.fail, "Trouble"), (tasks.aecho, tasks.afail, "ValueError")):
            with heard() as said:
                self.done(ok)
            name = "TarryBackend"
            assert said == [
                ("enqueued", READY, None, name), ("started", "RUNNING", None, name), ("finished", DONE, None, name)
            ]  # fmt: skip
            with heard() as said:
                self.done(bad, "x")
            assert [each[:3] for each in said] == [
                ("enqueued", READY, None), ("started", "RUNNING", None), ("finished", FAILED, kind)
            ]  # fmt: skip

    def test_the_end_is_logged_with_the_error(self) -> None:
        with self.assertLogs(compat.PACKAGE, "INFO") as logs:
            result = self.done(tasks.fail, "x")
        last = logs.records[-1]
        assert last.levelname == "ERROR"
        assert result.id in last.getMessage()
        assert last.exc_info is not None
        assert last.exc_info[0] is tasks.Trouble

    def test_a_receiver_that_fails_changes_nothing(self) -> None:
        def bad(**more: Any) -> None:
            raise RuntimeError("a receiver")

        for signal in (compat.task_enqueued, compat.task_started, compat.task_finished):
            signal.connect(bad)
        try:
            with self.assertLogs("django.dispatch", "ERROR"):
                assert self.done(tasks.echo).status == DONE
        finally:
            for signal in (compat.task_enqueued, compat.task_started, compat.task_finished):
                signal.disconnect(bad)

    def test_awaited(self) -> None:
        async def calls() -> Any:
            result = await tasks.aecho.aenqueue(1, two=2)
            await self.app.adrain(timeout=30)
            await result.arefresh()
            found = await tasks.aecho.aget_result(result.id)
            with self.assertRaises(compat.TaskResultDoesNotExist):
                await self.backend.aget_result("none")
            return result, found

        result, found = asyncio.run(calls())
        assert result == found
        assert result.return_value == [[1], {"two": 2}]

    def test_a_task_that_todays_settings_refuse_is_restored(self) -> None:
        result = self.done(tasks.mail, "ann")
        job = self.app.client.get(result.id).record()
        with mock.patch.object(self.backend, "queues", {"default"}), self.assertRaises(compat.InvalidTask):
            tasks.mail.enqueue("bob")
        with mock.patch.object(self.backend, "queues", {"default"}):
            found = self.backend.get_result(result.id)
        assert (found.task.queue_name, found.task.priority, found.return_value) == ("mail", 7, "ann")
        assert job.priority == 7

    def test_the_result_of_a_task_that_is_gone(self) -> None:
        result = self.done(tasks.mail, "ann")
        with mock.patch.object(tasks, "mail", None):
            found = self.backend.get_result(result.id)
        assert found.task.module_path == "tests.django.project.tasks.mail"
        assert found.return_value == "ann"
        assert found.task.name == "mail"

    def test_arguments_that_cannot_be_had_do_not_hide_the_state(self) -> None:
        client, name = self.app.client, tasks.mail.module_path
        (sealed,) = client.insert_jobs([client.make_job(name, b' {"tarry-sealed":"01234567.AAAA"}')])
        assert self.backend.get_result(sealed.id).kwargs == {}
        lost = tasks.mail.enqueue("ann")
        with mock.patch.object(client.store, "load_arguments", side_effect=PayloadLost("gone")):
            assert self.backend.get_result(lost.id).status == READY

    def test_another_backend(self) -> None:
        other = tasks.echo.using(backend="other", queue_name="anything")
        result = other.enqueue(6)
        assert result.backend == "other"
        assert not self.app.client.store.counts()
        compat.task_backends["other"].app.drain(timeout=30)
        result.refresh()
        assert result.return_value == [[6], {}]

    def test_threads_share_one_store(self) -> None:
        """Django makes a backend for each of them."""
        with ThreadPoolExecutor(1) as pool:
            backend, app = pool.submit(lambda: (self.backend, self.app)).result()
        assert backend is not self.backend
        assert app is self.app

    def test_a_task_may_be_called_and_copied(self) -> None:
        assert tasks.mail.call("ann") == "ann"
        for task, value in ((tasks.aecho, [["ann"], {}]), (tasks.mail, "ann")):
            assert async_to_sync(task.acall)("ann") == value
        if hasattr(compat.Task, "_reconstruct"):  # from Django 6.1 on
            for task in (tasks.mail, tasks.limited, tasks.ours(tasks.stubborn).using(timeout=5, priority=3)):
                assert repr(pickle.loads(pickle.dumps(task))) == repr(task)

    def test_settings_may_change(self) -> None:
        changed = {"default": {"BACKEND": "tarry.django.Backend", "QUEUES": [], "OPTIONS": {"store": "memory://"}}}
        with override_settings(TASKS=changed):
            assert tasks.echo.using(queue_name="new").enqueue().status == READY
            assert self.backend.app.store_url == "memory://"
