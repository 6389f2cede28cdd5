"""What `python -m tools.docs` writes, and how it says that something is out of date."""

from pathlib import Path

import pytest

from tools import docs
from tools.blocks import MissingBlockError, markdown_table, replace_block
from tools.parity import report
from torch_loom.config import SETTINGS


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for setting in SETTINGS:
        monkeypatch.delenv(setting.env, raising=False)


@pytest.fixture
def run():
    """Runs the command with arguments and returns its exit status."""

    def status(*arguments):
        try:
            docs.main(arguments)
        except SystemExit as end:
            return end.code
        return 0

    return status


def test_replace_block_changes_only_the_block():
    text = "a\n<!-- begin x: note -->\nold\n<!-- end x -->\nb\n"
    new = replace_block(text, "x", r"new \1")
    assert new == text.replace("old", r"new \1")
    assert replace_block(new, "x", r"new \1") == new
    with pytest.raises(MissingBlockError, match="begin y"):
        replace_block(text, "y", "")


def test_markdown_table_escapes_pipes():
    assert markdown_table(["a"], [["b|c"]]) == "| a |\n| --- |\n| b\\|c |"


def test_example_output_is_that_of_a_real_run():
    assert docs.example_output("```python\nprint(6 * 7)\n```\n") == "```text\n42\n```"
    with pytest.raises(docs.DocsError, match="ZeroDivisionError"):
        docs.example_output("```python\n1 / 0\n```\n")


def test_readme_lists_what_there_is():
    root = Path(__file__).parents[2]
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert docs.settings_table() in (root / docs.SETTINGS_FILE).read_text(encoding="utf-8")
    assert report.counts() in readme


@pytest.mark.long
def test_check_fails_on_a_stale_readme(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run() == 1
    readme = tmp_path / "README.md"
    blocks = "".join(
        f"<!-- begin {name} -->\n<!-- end {name} -->\n" for name in ("example-output", "what-works")
    )
    readme.write_text("```python\nprint(1)\n```\n" + blocks)
    assert run("--check") == 1
    assert run() == 0
    assert run("--check") == 0
    assert "TORCH_LOOM_DEVICES" in (tmp_path / docs.SETTINGS_FILE).read_text()
    page = tmp_path / report.FILE
    page.write_text(page.read_text() + "more")
    assert run("--check") == 1
