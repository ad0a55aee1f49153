"""`tarry reload` and `tarry scale`, and what they say."""

from tests.cli.project import SMALL_APP, Project, until


def test_new_code_takes_over(project: Project) -> None:
    project.serve()
    before = project.pids()
    project.write("app.py", SMALL_APP.replace("return a + b", "return 100 * a + b"))
    assert project.tarry("reload").out == "reloaded: generation 2 serves\n"
    until(lambda: project.pids() and not set(before) & set(project.pids()))
    job = project.enqueue("app.add", "1", "2")
    until(lambda: project.job(job).state == "done")
    assert project.job(job).note == b"102"
    assert project.tarry("reload", "--json").out == '{"state":"reloaded","generation":3}\n'
    assert ", generation 3, " in project.said("status").splitlines()[0]


def test_new_settings_take_over(project: Project) -> None:
    project.settings("[pools.default]\nworkers = 1\n")
    project.serve()
    project.settings("[pools.default]\nworkers = 3\n[pools.mail]\nqueues = ['mail']\n")
    assert project.tarry("reload").status == 0
    until(lambda: sorted(child.name for child in project.board().children if child.role == "worker") == [
        "worker default.1", "worker default.2", "worker default.3", "worker mail.1",
    ])  # fmt: skip


def test_what_is_wrong_is_told_and_changes_nothing(project: Project) -> None:
    project.serve()
    before = project.pids()
    project.write("app.py", SMALL_APP + "import nothing_of_that_name\n")
    told = project.tarry("reload").err
    assert "tarry: the reload came to nothing, and what ran goes on: canary could not start: " in told
    assert "nothing_of_that_name" in told
    assert "the last reload failed: canary could not start: " in project.said("status")
    project.settings("[pools.default]\nworkers = 0\n")
    assert "tarry.toml:3: pools.default.workers: expected a whole number of 1 or more" in project.refused("reload")
    assert project.pids() == before
    project.write("app.py", SMALL_APP)
    project.settings("")
    assert project.tarry("reload").out == "reloaded: generation 2 serves\n"
    assert "failed" not in project.said("status").replace("processed  failed attempts", "")


def test_what_belongs_to_the_master_itself_takes_a_restart(project: Project) -> None:
    project.serve()
    project.settings("[master]\nlog_format = 'json'\n")
    assert project.tarry("reload").status == 0
    assert "[master] log_format has changed: that takes a restart" in project.log()


def test_scale(project: Project) -> None:
    project.serve()
    assert project.said("scale", "default", "3") == "default: 3 wanted"
    until(lambda: len(project.pids()) == 3)
    assert project.facts("scale", "default", "0") == {"pool": "default", "workers": 0}
    until(lambda: not project.pids())
    assert project.refused("scale", "mail", "1") == "no pool 'mail': there are default"
    assert project.tarry("scale", "default", "-1").status == 2
    assert project.tarry("reload").status == 0
    assert project.pids() == [], "what was scaled stays so as long as the settings say the same"


def test_nothing_runs(project: Project) -> None:
    for words in (("reload",), ("scale", "default", "2")):
        assert project.refused(*words) == f"no master is running ({project.pid_file}): `tarry start` starts one"
