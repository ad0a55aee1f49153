"""`python -m bench.ratio`: what is said of pairs of runs, and of a revision that is checked out."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from bench import ratio
from bench.ratio import checked_out, figures_of, main, ratios, table

FAST = {"drain": (100.0, "/s"), "cpu": (10.0, "µs"), "rss": (40.0, "MB"), "lost": (0.0, "jobs")}
SLOW = {"drain": (50.0, "/s"), "cpu": (40.0, "µs"), "rss": (80.0, "MB"), "gone": (1.0, "/s")}


def test_above_one_is_better_for_rates_and_for_costs() -> None:
    assert ratios([(SLOW, FAST), (FAST, FAST)]) == {"cpu": [4.0, 1.0], "drain": [2.0, 1.0]}
    assert ratios([(FAST, SLOW)]) == {"cpu": [0.25], "drain": [0.5]}


def test_what_the_bench_prints_is_read() -> None:
    figures = [{"name": "drain", "median": 5.0, "unit": "/s", "values": [5.0], "noise": [0.1]}]
    assert figures_of({"figures": figures, "failed": []}) == {"drain": (5.0, "/s")}


def test_the_table_names_what_is_slower() -> None:
    *_, cpu, drain = table({"cpu": [0.5, 0.7, 0.75], "drain": [0.5, 0.6, 0.9]}, 0.8).splitlines()
    assert cpu == "| cpu | 0.70 **slower** | 0.50 – 0.75 |"
    assert "slower" not in drain, "one pair says otherwise"


def test_a_tree_that_is_slower_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    measured: list[bool] = []

    def measure(tree: Path, names: object) -> ratio.Figures:
        measured.append(tree == ratio.ROOT)
        return SLOW if tree == ratio.ROOT else FAST

    monkeypatch.setattr(ratio, "measure", measure)
    monkeypatch.setattr(ratio, "checked_out", lambda revision: nullcontext(tmp_path))
    assert main(["HEAD", "--rounds", "2"]) == 1
    assert measured == [False, True, False, True], "in turn"
    assert "drain | 0.50" in capsys.readouterr().out
    assert main(["HEAD", "--rounds", "1", "--bound", "0.2"]) == 0


def test_a_revision_is_checked_out_and_goes_again() -> None:
    with checked_out("HEAD") as tree:
        assert (tree / "bench/__main__.py").is_file()
    assert not tree.exists()
    with pytest.raises(SystemExit, match="git has no no-such-branch here"), checked_out("no-such-branch"):
        pass
