"""`tarry reload` and `tarry scale`, and what they say."""

from tests.cli.project import SMALL_APP, Place, until


def test_new_code_takes_over(place: Place) -> None:
    place.serve()
    before = place.pids()
    place.write("app.py", SMALL_APP.replace("return a + b", "return 100 * a + b"))
    assert place.tarry("reload").out == "reloaded: generation 2 serves\n"
    until(lambda: place.pids() and not set(before) & set(place.pids()))
    job = place.enqueue("app.add", "1", "2")
    until(lambda: place.job(job).state == "done")
    assert place.job(job).note == b"102"
    assert place.tarry("reload", "--json").out == '{"state":"reloaded","generation":3}\n'
    assert ", generation 3, " in place.said("status").splitlines()[0]


def test_new_settings_take_over(place: Place) -> None:
    place.settings("[pools.default]\nworkers = 1\n")
    place.serve()
    place.settings("[pools.default]\nworkers = 3\n[pools.mail]\nqueues = ['mail']\n")
    assert place.tarry("reload").status == 0
    until(lambda: sorted(child.name for child in place.board().children if child.role == "worker") == [
        "worker default.1", "worker default.2", "worker default.3", "worker mail.1",
    ])  # fmt: skip


def test_what_is_wrong_is_told_and_changes_nothing(place: Place) -> None:
    place.serve()
    before = place.pids()
    place.write("app.py", SMALL_APP + "import nothing_of_that_name\n")
    told = place.tarry("reload").err
    assert "tarry: the reload came to nothing, and what ran goes on: canary could not start: " in told
    assert "nothing_of_that_name" in told
    assert "the last reload failed: canary could not start: " in place.said("status")
    place.settings("[pools.default]\nworkers = 0\n")
    assert "tarry.toml:3: pools.default.workers: expected a whole number of 1 or more" in place.refused("reload")
    assert place.pids() == before
    place.write("app.py", SMALL_APP)
    place.settings("")
    assert place.tarry("reload").out == "reloaded: generation 2 serves\n"
    assert "failed" not in place.said("status").replace("processed  failed", "")


def test_what_belongs_to_the_master_itself_takes_a_restart(place: Place) -> None:
    place.serve()
    place.settings("[master]\nlog_format = 'json'\n")
    assert place.tarry("reload").status == 0
    assert "[master] log_format has changed: that takes a restart" in place.log()


def test_scale(place: Place) -> None:
    place.serve()
    assert place.said("scale", "default", "3") == "default: 3 wanted"
    until(lambda: len(place.pids()) == 3)
    assert place.facts("scale", "default", "0") == {"pool": "default", "workers": 0}
    until(lambda: not place.pids())
    assert place.refused("scale", "mail", "1") == "no pool 'mail': there are default"
    assert place.tarry("scale", "default", "-1").status == 2
    assert place.tarry("reload").status == 0
    assert place.pids() == [], "what was scaled stays so as long as the settings say the same"


def test_nothing_runs(place: Place) -> None:
    for words in (("reload",), ("scale", "default", "2")):
        assert place.refused(*words) == f"no master is running ({place.pid_file}): `tarry start` starts one"
