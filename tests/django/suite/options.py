"""What tarry adds to Django's contract: retries, timeouts, keys, expiries, limits."""

from datetime import timedelta

from tarry import Retry
from tarry.django import compat, task
from tarry.django.django_task import DjangoTask
from tarry.model.job import State
from tests.django.project import tasks
from tests.django.suite.base import StoreCase, heard


class Options(StoreCase):
    def test_a_task_is_tried_again(self) -> None:
        with heard() as said:
            result = self.done(tasks.stubborn, 3)
        assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 3)
        assert [each[:2] for each in said] == [
            ("enqueued", "READY"), *[("started", "RUNNING")] * 3, ("finished", "SUCCESSFUL")
        ]  # fmt: skip
        assert [error.exception_class for error in result.errors] == [tasks.Trouble] * 2
        assert ["not yet: 1" in result.errors[0].traceback, "not yet: 2" in result.errors[1].traceback] == [True, True]
        assert len(set(result.worker_ids)) == 1
        assert "" not in result.worker_ids

    def test_until_there_are_no_attempts_left(self) -> None:
        with heard(compat.task_finished) as said:
            result = self.done(tasks.stubborn, 9)
        assert (result.status, result.attempts, len(result.errors)) == ("FAILED", 3, 3)
        assert "Traceback" in result.errors[-1].traceback
        assert "not yet: 3" in result.errors[-1].traceback
        assert [each[:3] for each in said] == [("finished", "FAILED", "Trouble")]

    def test_between_attempts_it_is_ready(self) -> None:
        result = self.done(tasks.ours(tasks.fail).using(retries=Retry(1, base=3600)), "x")
        assert (result.status, result.attempts, result.is_finished, len(result.errors)) == ("READY", 1, False, 1)
        assert result.started_at is not None
        assert result.finished_at is None

    def test_options_of_one_call(self) -> None:
        result = self.done(tasks.stubborn.using(retries=0), 2)
        assert (result.status, result.attempts) == ("FAILED", 1)

    def test_a_timeout(self) -> None:
        result = self.done(tasks.endless)
        assert result.status == "FAILED"
        assert issubclass(result.errors[0].exception_class, BaseException)
        assert "in endless" in result.errors[0].traceback

    def test_a_key_is_of_one_unfinished_job(self) -> None:
        first, second = tasks.limited.enqueue(), tasks.limited.enqueue()
        assert first.id == second.id
        assert first.status == second.status == "READY"
        another = tasks.limited.using(key="two").enqueue()
        assert another.id != first.id

    def test_an_expired_job_has_failed(self) -> None:
        soon = tasks.ours(tasks.echo).using(expires=0.000001)
        result = self.done(soon)
        assert (result.status, result.is_finished, len(result.errors)) == ("FAILED", True, 1)
        assert "could not start in time" in result.errors[0].traceback

    def test_a_cancelled_job_has_failed(self) -> None:
        result = tasks.echo.enqueue()
        self.app.get(result.id).cancel("no longer wanted")
        result.refresh()
        assert (result.status, result.attempts) == ("FAILED", 0)
        assert "no longer wanted" in result.errors[0].traceback
        assert result.errors[0].exception_class.__name__ == "JobCancelled"

    def test_a_cancelled_job_has_finished_for_receivers(self) -> None:
        result = tasks.echo.enqueue()
        with heard(compat.task_finished) as said:
            self.app.get(result.id).cancel("no longer wanted")
            assert not self.app.get(result.id).cancel()
        assert said == [("finished", "FAILED", None, "TarryBackend")]

    def test_a_task_may_cancel_its_job(self) -> None:
        for task_ in (tasks.unwanted, tasks.aunwanted):
            for how in ("raise", "return"):
                with heard(compat.task_finished) as said:
                    result = self.done(task_, how)
                assert (result.status, "no longer wanted" in result.errors[-1].traceback) == ("FAILED", True)
                assert said == [("finished", "FAILED", None, "TarryBackend")], how

    def test_each_attempt_keeps_its_own_traceback(self) -> None:
        result = self.done(tasks.stubborn, 9)
        assert ["in stubborn" in error.traceback for error in result.errors] == [True] * 3
        assert [f"not yet: {number}" in result.errors[number - 1].traceback for number in (1, 2, 3)] == [True] * 3

    def test_the_settings_reach_tarry(self) -> None:
        made = self.app.tasks["tests.django.project.tasks.limited"]
        assert (made.timeout, made.retry.limit, [limit.most for limit in made.limits.values()]) == (30, 1, [3])
        job = self.app.get(tasks.limited.enqueue().id).record()
        assert (job.key, job.expires - job.due, job.state) == ("one", 3_600_000_000, State.READY)

    def test_wrong_options_are_refused_with_their_name(self) -> None:
        for wrong in ({"retries": -1}, {"retries": True}, {"timeout": "soon"}, {"key": ""}, {"limit": -1}):
            (name,) = wrong
            with self.assertRaisesMessage(compat.InvalidTask, name):
                task(tasks.plain, **wrong)

    def test_our_decorator_is_as_djangos(self) -> None:
        made = task(tasks.plain, priority=3, queue_name="mail", retries=4, timeout=timedelta(seconds=1))
        assert isinstance(made, DjangoTask)
        assert (made.priority, made.queue_name, made.retries, made.backend) == (3, "mail", 4, "default")
        with self.assertRaises(TypeError):
            task(tasks.plain, run_after=None)

    def test_a_snooze_is_no_failure(self) -> None:
        result = self.done(tasks.snoozes)
        assert (result.status, result.return_value, result.errors) == ("SUCCESSFUL", 2, [])

    def test_only_tasks_are_run(self) -> None:
        for name in ("os.getpid", "tests.django.project.tasks.plain", "tests.django.project.tasks.Trouble", "nonsense"):
            assert self.app.tasks.get(name) is None, name
            with self.assertRaises(KeyError):
                self.app.tasks[name]
