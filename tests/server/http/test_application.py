"""What all methods of the API have in common: routes, checks, problems, the documents that describe them."""

import json
import threading
from typing import Any

import httpx
from msgspec import Struct
from starlette.responses import Response

from tarry import App
from tarry.errors import Busy, NotAllowed, NotAuthenticated, QueueFull, StoreAway, TenantFull
from tarry.operate.access import Scope
from tarry.operate.problem import RequestError
from tarry.server.http.description.openapi import openapi_document
from tarry.server.http.method import ApiCall, api_method
from tarry.server.http.problem import KINDS
from tarry.server.identity.access import OpenAccess
from tarry.server.service import DoorSettings
from tarry.server.serving.api import METHODS
from tarry.store.memory.store import MemoryStore
from tests.server.http.calling import api, run


class BoxPath(Struct):
    box: int


class BoxQuery(Struct, forbid_unknown_fields=True):
    most: int = 10
    """At most
    so many."""
    state: list[str] = []


class BoxBody(Struct, forbid_unknown_fields=True):
    weight: float
    label: str = ""


class Box(Struct):
    box: int
    """Its number."""
    weight: float
    thread: str
    most: int = 0
    states: list[str] = []


@api_method("GET /v1/boxes/{box}", Scope.READ)
async def show_box(call: ApiCall, path: BoxPath, query: BoxQuery) -> Box:
    """Shows a box."""
    return Box(path.box, 0.5, threading.current_thread().name, query.most, query.state)


@api_method("PUT /v1/boxes/{box}", Scope.OPERATE, status=201)
def put_box(call: ApiCall, path: BoxPath, body: BoxBody) -> Box:
    """Puts a box.

    At its place."""
    return Box(path.box, body.weight, threading.current_thread().name)


@api_method("DELETE /v1/boxes/{box}", Scope.ADMIN)
def drop_box(call: ApiCall, path: BoxPath) -> None:
    """Drops a box."""


@api_method("GET /v1/boxes/plain", None)
async def plain_box(call: ApiCall) -> Response:
    """Shows a box that comes before all others."""
    return Response("plain")


@api_method("POST /v1/boxes/trouble", Scope.PUT)
def trouble(call: ApiCall) -> None:
    """Raises what the test has put there."""
    raise ERRORS[-1]


ERRORS: list[Exception] = []
BOXES = (show_box, put_box, drop_box, plain_box, trouble)


def answers(*requests: tuple[str, str, dict[str, Any]], **settings: Any) -> list[httpx.Response]:
    """What these requests are answered."""

    async def story() -> list[httpx.Response]:
        async with api(App(MemoryStore()), DoorSettings(**settings), methods=BOXES) as client:
            return [await client.request(verb, path, **more) for verb, path, more in requests]

    return run(story)


def answer(verb: str, path: str, **more: Any) -> httpx.Response:
    return answers((verb, path, more))[0]


def problem(verb: str, path: str, **more: Any) -> tuple[int, str, str | None]:
    """Its status, detail and field."""
    got = answer(verb, path, **more)
    assert got.headers["content-type"] == "application/problem+json"
    said = got.json()
    assert said["status"] == got.status_code
    assert said["instance"] == path.partition("?")[0]
    assert said["type"].startswith("urn:tarry:problem:")
    return got.status_code, said["detail"], said.get("field")


def test_a_method_gets_its_path_and_query() -> None:
    got = answer("GET", "/v1/boxes/7?most=3&state=a&state=b")
    assert got.json() | {"thread": ""} == {"box": 7, "weight": 0.5, "thread": "", "most": 3, "states": ["a", "b"]}
    assert got.headers["content-type"] == "application/json"


def test_what_may_block_runs_in_a_thread_of_the_service_and_nothing_else_does() -> None:
    got = answers(("GET", "/v1/boxes/7", {}), ("PUT", "/v1/boxes/7", {"json": {"weight": 1}}))
    assert [each.json()["thread"] for each in got] == ["MainThread", "tarry-door_0"]
    assert got[1].status_code == 201


def test_a_method_without_an_answer_has_no_body() -> None:
    got = answer("DELETE", "/v1/boxes/7")
    assert (got.status_code, got.content) == (204, b"")


def test_a_path_without_parameters_comes_first() -> None:
    assert answer("GET", "/v1/boxes/plain").text == "plain"


def test_what_is_wrong_is_named() -> None:
    assert problem("GET", "/v1/boxes/x") == (422, "path: box: expected `int`, got `str`", "box")
    assert problem("GET", "/v1/boxes/1?most=x") == (422, "query: most: expected `int`, got `str`", "most")
    assert problem("GET", "/v1/boxes/1?much=x") == (422, "query: much: object contains unknown field `much`", "much")
    assert problem("GET", "/v1/boxes/1?most=1&most=2") == (422, "query: most: given twice", "most")
    assert problem("DELETE", "/v1/boxes/1?most=1") == (422, "query: most: this method takes no parameters", "most")
    heavy: Any = {"weight": "heavy"}
    assert problem("PUT", "/v1/boxes/1", json=heavy) == (422, "body: weight: expected `float`, got `str`", "weight")
    assert problem("PUT", "/v1/boxes/1", json={}) == (
        422,
        "body: weight: object missing required field `weight`",
        "weight",
    )
    assert problem("PUT", "/v1/boxes/1") == problem("PUT", "/v1/boxes/1", json={})


def test_a_body_that_is_no_json_is_refused() -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    status, detail, field = problem("PUT", "/v1/boxes/1", content=b"{", headers=headers)
    assert (status, field) == (400, "body")
    assert detail.startswith("the body is no JSON: ")
    assert problem("PUT", "/v1/boxes/1", content=b"\xff", headers=headers)[0] == 400


def test_a_body_of_another_type_is_refused() -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        got = problem("PUT", "/v1/boxes/1", content=b'{"weight":1}', headers={"Content-Type": kind})
        assert got == (415, f"send Content-Type: application/json, not {kind}", "Content-Type")
    assert problem("PUT", "/v1/boxes/1", content=b"{}")[1] == "send Content-Type: application/json, not none"


def test_a_body_that_is_too_large_is_refused_also_where_its_length_is_not_said() -> None:
    async def pieces() -> Any:
        for _ in range(9):
            yield b"0123456789"

    long = {"content": b"x" * 100, "headers": {"Content-Type": "application/json"}}
    got = answers(("PUT", "/v1/boxes/1", long), ("PUT", "/v1/boxes/1", long | {"content": pieces()}), max_request=80)
    assert [each.status_code for each in got] == [413, 413]
    assert got[0].json()["detail"] == "the body takes more than 80 bytes: send less at once"


def test_another_path_or_verb_is_a_problem_too() -> None:
    assert problem("GET", "/v1/nothing") == (404, "there is nothing here; /v1/docs lists what there is", None)
    assert problem("GET", "/v1/boxes/1/") == (404, "there is nothing here; /v1/docs lists what there is", None)
    got = answer("POST", "/v1/boxes/1")
    assert got.status_code == 405
    assert got.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PUT"


def test_head_has_the_headers_of_get_and_no_body() -> None:
    got = answers(("GET", "/v1/boxes/7", {}), ("HEAD", "/v1/boxes/7", {}))
    assert got[1].content == b""
    assert got[0].headers == got[1].headers


def test_options_says_what_is_allowed_and_other_sites_are_not() -> None:
    got = answer("OPTIONS", "/v1/boxes/7", headers={"Origin": "https://evil.test"})
    assert (got.status_code, got.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PUT")
    assert not [name for name in got.headers if name.startswith("access-control")]
    status, detail, _ = problem("DELETE", "/v1/boxes/7", headers={"Origin": "https://evil.test"})
    assert (status, detail) == (403, "pages of https://evil.test may not call this server")
    assert answer("DELETE", "/v1/boxes/7", headers={"Origin": "http://tarry.test"}).status_code == 204


def test_without_tokens_no_name_may_lead_here() -> None:
    def status(host: str, **settings: bool) -> int:
        return answers(("GET", "/v1/boxes/7", {"headers": {"Host": host}}), **settings)[0].status_code

    for host in ("localhost", "localhost:7800", "127.0.0.1", "127.0.0.1:7800", "[::1]:7800", "[::1]"):
        assert status(host, needs_local_host=True) == 200
    for host in ("evil.test", "evil.test:7800", "localhost.evil.test", "127.0.0.1.evil.test"):
        assert status(host, needs_local_host=True) == 403
        assert status(host) == 200


def test_each_error_has_its_status() -> None:
    got = []
    for kind in KINDS:
        ERRORS.append(kind("why", 1) if issubclass(kind, QueueFull) else kind("why"))
        got.append((kind, answer("POST", "/v1/boxes/trouble")))
    assert [each.status_code for _, each in got] == [kind.status for kind in KINDS.values()]
    assert {each.json()["detail"] for _, each in got} == {"why", str(QueueFull("why", 1)), str(TenantFull("why", 1))}
    types = {each.json()["type"]: each.json()["title"] for _, each in got}
    assert len(types) == len(set(types.values())), "one type, one title"


def test_whoever_may_try_again_is_told_when() -> None:
    ERRORS.append(Busy("later", retry_after=2.5))
    got = answer("POST", "/v1/boxes/trouble")
    assert (got.status_code, got.headers["retry-after"], got.json()["retry_after"]) == (503, "3", 2.5)
    ERRORS.append(StoreAway("away"))
    got = answer("POST", "/v1/boxes/trouble")
    assert (got.headers["retry-after"], got.json()["stored"]) == ("1", False)


def test_a_fault_of_ours_is_logged_and_tells_the_caller_nothing(caplog: Any) -> None:
    ERRORS.append(KeyError("password"))
    assert problem("POST", "/v1/boxes/trouble") == (500, "the server's log says why", None)
    assert caplog.records[-1].exc_info[1] is ERRORS[-1]


def test_whoever_names_no_token_is_told_which_kind() -> None:
    ERRORS.append(NotAuthenticated("which token?"))
    got = answer("POST", "/v1/boxes/trouble")
    assert (got.status_code, got.headers["www-authenticate"]) == (401, "Bearer")


class OnlyReader:
    name = entry = "reader"
    namespace = ""
    queues = ()

    def check_task(self, task: str, queue: str | None) -> None: ...

    def check(self, scope: Scope, queue: str | None = None) -> None:
        if scope != Scope.READ:
            raise NotAllowed(f"needs the scope {scope}")

    def allows(self, scope: Scope, queue: str) -> bool:
        return scope == Scope.READ


class OnlyReaders(OpenAccess):
    def caller(self, headers: Any, address: str) -> OnlyReader:
        assert address == "127.0.0.1"
        return OnlyReader()


def test_a_method_needs_its_scope() -> None:
    async def story() -> list[int]:
        async with api(App(MemoryStore()), access=OnlyReaders(), methods=BOXES) as client:
            paths = [("GET", "/v1/boxes/1"), ("DELETE", "/v1/boxes/1"), ("GET", "/v1/boxes/plain")]
            return [(await client.request(*each)).status_code for each in paths]

    assert run(story) == [200, 403, 200]


def test_the_document_says_all_of_it() -> None:
    document = json.loads(json.dumps(openapi_document(BOXES, "1")))
    shown = document["paths"]["/v1/boxes/{box}"]["get"]
    assert [(each["name"], each["in"], each["required"]) for each in shown["parameters"]] == [
        ("box", "path", True),
        ("most", "query", False),
        ("state", "query", False),
    ]
    assert shown["parameters"][1]["description"] == "At most so many."
    assert document["components"]["schemas"]["Box"]["properties"]["box"]["description"] == "Its number."
    put = document["paths"]["/v1/boxes/{box}"]["put"]
    assert put["requestBody"]["required"]
    assert (put["summary"], put["description"]) == ("Puts a box.", "At its place.\n\nNeeds the scope `operate`.")
    assert set(put["responses"]) == {"201", "400", "401", "403", "404", "413", "415", "422", "500", "503", "507"}
    assert set(document["components"]["schemas"]) >= {"Box", "BoxBody", "Problem"}


def test_the_api_describes_itself() -> None:
    async def story() -> tuple[httpx.Response, httpx.Response]:
        async with api(App(MemoryStore())) as client:
            return await client.get("/v1/openapi.json"), await client.get("/v1/docs")

    described, page = run(story)
    paths = described.json()["paths"]
    assert {(verb.upper(), path) for path, verbs in paths.items() for verb in verbs} == {
        (method.verb, method.route) for method in METHODS
    }
    names = [operation["operationId"] for verbs in paths.values() for operation in verbs.values()]
    assert len(names) == len(set(names))
    assert all(method.summary for method in METHODS)
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert all(path in page.text for path in paths)


def test_a_request_error_needs_a_known_status() -> None:
    ERRORS.append(RequestError("gone", "box", 409))
    assert problem("POST", "/v1/boxes/trouble") == (409, "gone", "box")
