"""Enqueues within transactions of Django's, on the database that keeps the jobs or another."""

import contextlib
from unittest import mock

from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import TestCase, override_settings

from tarry.django import compat
from tests.django.project import tasks
from tests.django.suite.base import StoreCase


class Transactions(StoreCase):
    def stored(self) -> int:
        return sum(tally.count for tally in self.app.client.store.counts())

    def test_a_commit_stores_the_job(self) -> None:
        with transaction.atomic():
            result = tasks.echo.enqueue(1)
            assert self.stored() == 0
            with self.assertRaises(compat.TaskResultDoesNotExist):
                result.refresh()
        assert self.stored() == 1
        self.run_jobs()
        result.refresh()
        assert result.return_value == [[1], {}]

    def test_a_rollback_drops_it(self) -> None:
        with self.assertRaises(KeyError), transaction.atomic():
            tasks.echo.enqueue(1)
            raise KeyError
        assert self.stored() == 0

    def test_a_savepoint_that_is_rolled_back_drops_its_own(self) -> None:
        with transaction.atomic():
            kept = tasks.echo.enqueue(1)
            with self.assertRaises(KeyError), transaction.atomic():
                tasks.echo.enqueue(2)
                raise KeyError
        assert self.stored() == 1
        kept.refresh()

    def test_without_autocommit(self) -> None:
        transaction.set_autocommit(False)
        try:
            if not self.is_same:
                # Django tells the commit of a transaction only within `atomic`.
                with self.assertRaises(transaction.TransactionManagementError):
                    tasks.echo.enqueue(1)
                return
            tasks.echo.enqueue(1)
            transaction.rollback()
            assert self.stored() == 0
            tasks.echo.enqueue(2)
            transaction.commit()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
        assert self.stored() == 1

    @property
    def is_same(self) -> bool:
        return not self.backend.options.get("store") and self.app.store_url != "memory://"

    def test_awaited_within_a_transaction(self) -> None:
        def within(fails: bool) -> None:
            with transaction.atomic():
                async_to_sync(tasks.aecho.aenqueue)(1)
                assert self.stored() == 0
                if fails:
                    raise KeyError

        with self.assertRaises(KeyError):
            within(True)
        assert self.stored() == 0
        within(False)
        assert self.stored() == 1

    def test_on_commit_may_be_switched_off_for_another_store(self) -> None:
        if self.is_same:
            self.skipTest("the jobs are in the same database")
        options = {**self.backend.options, "store": self.app.store_url, "enqueue_on_commit": False}
        at_once = type(self.backend)("at_once", {"QUEUES": [], "OPTIONS": options})
        with transaction.atomic():
            at_once.enqueue(tasks.echo, [1], {})
            assert sum(tally.count for tally in at_once.app.client.store.counts()) == 1

    def test_a_request_that_is_a_transaction(self) -> None:
        with mock.patch.dict(connection.settings_dict, {"ATOMIC_REQUESTS": True}):
            assert self.client.get("/enqueue?refuse=1").status_code == 403
            assert self.stored() == 0
            assert self.client.get("/enqueue").status_code == 200
        assert self.stored() == 1

    def test_an_async_view(self) -> None:
        answer = async_to_sync(self.async_client.get)("/aenqueue")
        assert self.app.get(answer.content.decode()).record().task == "tests.django.project.tasks.aecho"

    def test_a_log_of_queries_does_not_grow(self) -> None:
        with override_settings(DEBUG=True):
            # The first ones may open a connection, which has queries of its own.
            logged = [self.done(tasks.queries).return_value for _ in range(4)]
        assert 1 <= logged[-1] == logged[-2]


class SecondDatabase(StoreCase):
    databases = ("default", "second")

    def test_its_transactions_are_not_those_of_the_jobs(self) -> None:
        with self.assertRaises(KeyError), transaction.atomic(using="second"):
            tasks.echo.enqueue(1)
            raise KeyError
        assert sum(tally.count for tally in self.app.client.store.counts()) == 1

    def test_a_backend_may_be_of_it(self) -> None:
        options = {"store": "memory://", "database": "second"}
        backend = type(self.backend)("of_second", {"QUEUES": [], "OPTIONS": options})
        for fails in (True, False):
            with contextlib.suppress(KeyError), transaction.atomic(using="second"):
                backend.enqueue(tasks.echo, [1], {})
                if fails:
                    raise KeyError
        assert sum(tally.count for tally in backend.app.client.store.counts()) == 1


class RolledBack(TestCase):
    """A TestCase rolls each test back, and with it what the test has enqueued."""

    def setUp(self) -> None:
        self.app = compat.task_backends["default"].app

    def enqueue(self) -> None:
        with self.captureOnCommitCallbacks():
            result = tasks.echo.enqueue(1)
        assert result.status == "READY"
        assert not self.app.client.store.counts()

    def test_one(self) -> None:
        self.enqueue()

    def test_two(self) -> None:
        self.enqueue()

    def test_that_run_jobs(self) -> None:
        if self.app.store_url != "memory://":
            self.skipTest("a job that is not committed cannot be run")
        with self.captureOnCommitCallbacks(execute=True):
            result = tasks.echo.enqueue(1)
        self.app.drain(timeout=30)
        result.refresh()
        assert result.return_value == [[1], {}]
        self.app.client.forget(self.app.get(result.id).raw_id)
