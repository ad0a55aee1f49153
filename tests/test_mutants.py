"""The list of mutants stays true: each still has its text, its tests and its effect. `make mutants` runs them."""

from pathlib import Path

from msgspec.structs import replace

from tests.mutants.catalogue import Mutant, complaints, mutants


def test_each_can_still_be_made() -> None:
    assert list(complaints(mutants())) == []


def test_there_are_enough_of_them() -> None:
    """Over all that a mistake may hide in."""
    listed = mutants()
    assert len(listed) >= 60
    for part in (
        "model",
        "store/memory",
        "store/sqlite",
        "store/redis",
        "store/postgres",
        "store/mysql",
        "client",
        "worker",
    ):
        assert any(f"tarry/{part}" in mutant.file for mutant in listed), part


def test_one_that_is_not_true_any_more_is_told(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("one = 1\ntwo = 2\n")
    (tmp_path / "test.py").write_text("")
    good = Mutant("good", "code.py", "1", "3", ["test.py"])
    assert list(complaints([good], tmp_path)) == []
    bad = [
        replace(good, name="moved", find="4"),
        replace(good, name="twice", find="="),
        replace(good, name="same", replace="1"),
        replace(good, name="broken", replace="("),
        replace(good, name="no file", file="other.py"),
        replace(good, name="no test", tests=["other.py"]),
        replace(good, name="none", tests=[]),
        good,
        good,
    ]
    told = [line.split(":")[0] for line in complaints(bad, tmp_path)]
    assert told == ["good", *(mutant.name for mutant in bad[:-2])]
