from tests.cli.project import Project


def test_changes_of_many_jobs_are_listed_shown_and_stopped(project: Project) -> None:
    assert project.facts("operations") == {"operations": []}
    project.put("app.greet", "Ann", queue="mail")
    record = project.facts("jobs", "cancel", "--queue", "mail", "--state", "ready", "--yes")
    assert project.facts("operations", "list") == {"operations": [record]}
    assert project.facts("operations", "stop", record["id"]) == [record], "it has ended"
    line = project.said("operations", "show", record["id"]).splitlines()[1]
    assert f"{record['id']}  cancel  state:ready queue:mail  done" in line
    assert project.refused("operations", "stop", "0" * 32).startswith("no operation ")
