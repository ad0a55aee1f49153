"""Errors in groups over HTTP."""

from pathlib import Path

import msgspec
import pytest

from tarry import App
from tarry.store.queries.deploys import PREFIX, Deploy
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tests.server.http.calling import api, run
from tests.server.http.test_authorisation import Shop

ID, SCOPE = "0123456789abcdef", "ahost|1234.5"


@pytest.mark.parametrize(("queues", "version"), [('["*"]', "1.1"), ('["mail"]', None)])
def test_who_may_see_some_queues_is_told_of_no_deploy(
    app: App, tmp_path: Path, queues: str, version: str | None
) -> None:
    shop = Shop(app, tmp_path / "tokens.toml")
    store, now = shop.store, shop.store.time()
    mark = Deploy(f"{SCOPE}:7:100:0", at=now - 9, version="1.1", ticks=100)
    assert store.kv_cas(f"{PREFIX}{mark.instance}:1", msgspec.json.encode(mark), None)
    group = ErrorGroup("ValueError", "no", "", 1, now, now, f"{SCOPE}:9:200:1", tasks={"mail.send": 1})
    assert store.history.change_errors(lambda _: {group_place("mail", ID): encode_group(group)})

    async def story() -> None:
        async with api(shop.app, access=shop.access('["read"]', queues)) as client:
            client.headers["authorization"] = "Bearer it"
            told = (await client.get(f"/v1/errors/{ID}")).json()["deploy"]
            assert (told and told["version"]) == version
            listed = {one["id"]: one for one in (await client.get("/v1/errors?new_since=deploy")).json()["errors"]}
            assert listed[ID]["deploy"] == told
            assert len((await client.get("/v1/deploys")).json()["deploys"]) == (version is not None)

    run(story)
