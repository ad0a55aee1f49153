"""`tarry tokens`: a token is printed once, the file keeps its digest, and a removed one is gone."""

import stat
from pathlib import Path

import pytest

from tarry.errors import NotAuthenticated
from tarry.operate.access import Scope
from tarry.server.identity.tokens import TokenAccess
from tests.cli.project import Project

SETTINGS = '[server]\ntokens = "run/tokens.toml"\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, settings=SETTINGS)


def test_a_token_is_added_listed_and_removed(project: Project) -> None:
    file = project.directory / "run/tokens.toml"
    token = project.said(
        "tokens", "add", "shop", "--scope", "put", "--scope", "read", "--queue", "mail", "--task", "mail.*"
    )
    root = project.facts("tokens", "add", "root", "--scope", "admin", "--rate", "10/s")[0]["token"]
    text = file.read_text()
    assert token not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    access = TokenAccess(file)
    caller = access.caller({"authorization": f"Bearer {token}"}, "")
    caller.check(Scope.PUT, "mail")
    assert not caller.allows(Scope.PUT, "other")
    access.caller({"authorization": f"Bearer {root}"}, "").check(Scope.OPERATE)
    assert project.facts("tokens")["tokens"] == [
        {"name": "shop", "scopes": ["put", "read"], "queues": ["mail"], "tasks": ["mail.*"], "rate": None},
        {"name": "root", "scopes": ["admin"], "queues": ["*"], "tasks": [], "rate": "10/s"},
    ]
    assert "put read" in project.said("tokens", "list")
    file.write_text(f"# Ours.\n{file.read_text()}# The end.\n")
    assert project.said("tokens", "remove", "shop") == "shop removed"
    assert file.read_text().startswith("# Ours.\n")
    with pytest.raises(NotAuthenticated):
        TokenAccess(file).caller({"authorization": f"Bearer {token}"}, "")
    TokenAccess(file).caller({"authorization": f"Bearer {root}"}, "")


def test_what_is_wrong_is_told_and_changes_nothing(project: Project) -> None:
    file = project.directory / "run/tokens.toml"
    assert "does not exist: `tarry tokens add NAME --scope put` writes it" in project.refused("tokens")
    assert "what is the token for? add --scope put or --scope take or" in project.misused("tokens", "add", "shop")
    assert "add takes names of letters" in project.misused("tokens", "add", "a b", "--scope", "put")
    assert "rate 'often'" in project.misused("tokens", "add", "shop", "--scope", "put", "--rate", "often")
    assert "add which token?" in project.misused("tokens", "add")
    assert not file.exists()
    project.said("tokens", "add", "shop", "--scope", "put")
    before = file.read_text()
    assert "there is a token shop already" in project.refused("tokens", "add", "shop", "--scope", "put")
    assert "no token 'shap' in" in project.refused("tokens", "remove", "shap")
    assert file.read_text() == before
    project.settings("")
    assert project.refused("tokens").startswith("there is no file of tokens: set [server] tokens")
