"""Jobs that died a moment ago belong to their error at once, also where it was not known before."""

from tarry import App
from tests.server.http.calling import api, run


def refuse() -> None:
    raise ConnectionError("the bank is closed")


def test_those_of_another_task_are_retried_before_they_are_summed_up(app: App) -> None:
    @app.task(name="pay", queue="money", retry=None)
    def pay() -> None:
        refuse()

    @app.task(name="refund", queue="back", retry=None)
    def refund() -> None:
        refuse()

    pay.enqueue()
    app.drain()
    store = app.client.store
    while store.history.sum_up(store.time()):
        pass
    refund.enqueue()
    app.drain()

    async def story() -> tuple[list[str], int]:
        async with api(app) as client:
            (group,) = (await client.get("/v1/errors")).json()["errors"]
            path = f"/v1/errors/{group['id']}/retry"
            done = (await client.post(path, json={"dry_run": True})).json()
            while done["ended"] is None:
                done = (await client.get(f"/v1/operations/{done['id']}")).json()
            return list(group["tasks"]), done["matched"]

    assert run(story) == (["pay"], 2)
