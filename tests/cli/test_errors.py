"""`tarry errors`: failed attempts in groups, and their dead jobs."""

from typing import Any

from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tests.cli.project import Project, until


def groups(project: Project, count: int) -> list[dict[str, Any]]:
    """The groups, once there are so many."""
    found: list[dict[str, Any]] = until(
        lambda: listed if len(listed := project.facts("errors")["errors"]) == count else []
    )
    return found


def test_dead_jobs_are_retried_and_deleted_by_their_error(project: Project) -> None:
    assert project.facts("errors") == {"errors": [], "total": 0, "missing": None}
    jobs = project.put("app.fail", "no room for 1", times=2) + project.put("app.fail", "no room for 2")
    (other,) = project.put("app.fail", "closed")
    master = project.serve()
    found = {one["message"]: one for one in groups(project, 2)}
    assert {message: one["count"] for message, one in found.items()} == {"no room for …": 3, "closed": 1}
    id = found["no room for …"]["id"]
    shown = project.said("errors", "show", id)
    assert "ValueError" in shown
    assert "app.py:fail" in shown
    assert {one["id"] for one in project.facts("jobs", "list", "--error", id)["jobs"]} == set(jobs)
    assert project.said("errors", "retry", id, "--dry-run") == f"{id}: retry: 3 jobs would be changed"
    assert project.said("errors", "retry", id, "--yes") == f"{id}: retry: 3 jobs changed"
    until(lambda: project.facts("errors", "show", id)[0]["count"] == 6)
    assert project.said("errors", "mute", id) == f"{id}: muted"
    assert [one["id"] for one in project.facts("errors", "list", "--muted", "true")["errors"]] == [id]
    assert project.said("errors", "unmute", id) == f"{id}: not muted"
    project.said("stop")
    master.wait(60)
    assert project.said("errors", "delete", id, "--yes") == f"{id}: delete: 3 jobs changed"
    assert [job.state for job in project.jobs()] == ["dead"]
    assert [one["message"] for one in groups(project, 1)] == ["closed"]
    assert project.jobs()[0].id.hex() == other.replace("-", "")
    assert project.refused("errors", "show", id).startswith(f"no errors {id}: ")
    said = "error: expected text of 16 hexadecimal digits, as `tarry errors` lists them"
    assert project.misused("errors", "show", "nonsense") == said


def test_a_line_of_bars_shows_the_last_hours(project: Project) -> None:
    project.put("app.fail", "closed", times=3)
    master = project.serve()
    groups(project, 1)
    project.said("stop")
    master.wait(60)
    head, line = project.said("errors").splitlines()
    assert head.split()[:3] == ["id", "count", "last"]
    assert "█  ValueError: closed" in line


def test_the_name_of_a_class_does_nothing_to_the_terminal(project: Project) -> None:
    group = ErrorGroup("Odd\x1b[31m\n", count=1)
    with project.store() as store:
        assert store.history.change_errors(lambda _: {group_place("mail", "0" * 16): encode_group(group)})
    assert project.said("errors", "show", "0" * 16).splitlines()[0].endswith("Odd\\x1b[31m\\x0a")
