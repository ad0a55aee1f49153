"""A server that refuses statements whose WHERE names no key, as some companies set it for everybody."""

from tarry import App
from tests.servers.mariadb import MariadbServer


def test_tarry_does_its_work_there(mariadb_server: MariadbServer, mariadb_url: str) -> None:
    mariadb_server.call("SET GLOBAL sql_safe_updates=1")
    try:
        app = App(mariadb_url, closures=True)
        task = app.task(name="add", limit=2)(lambda number: number + 1)
        jobs = [task.enqueue(number) for number in range(3)]
        late = task.using(delay="1h", key="late").enqueue(1)
        app.drain()
        assert [one.result(0) for one in jobs] == [1, 2, 3]
        assert late.cancel()
        assert app.jobs(queue="default").delete().wait(30).changed == 4
        app.close()
    finally:
        mariadb_server.call("SET GLOBAL sql_safe_updates=0")
