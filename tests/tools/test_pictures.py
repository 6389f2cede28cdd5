"""The pictures of pages: each has a program, stands in a document, and is taken by its name."""

import re
import sys
import urllib.request

import pytest

from tools import pictures


def test_each_picture_has_its_program_and_is_shown():
    texts = [path.read_text(encoding="utf-8") for path in pictures.ROOT.glob("docs/*.md")]
    for name, picture in pictures.PICTURES.items():
        assert (pictures.ROOT / picture.program).is_file()
        assert (pictures.FOLDER / name).is_file()
        assert any(f"(pictures/{name})" in text for text in texts)
    assert {path.name for path in pictures.FOLDER.glob("*.png")} == set(pictures.PICTURES)


def test_unknown_picture_is_named(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pictures", "nosuch.png"])
    with pytest.raises(SystemExit, match=r"no pictures nosuch\.png: there are plan\.png, compile\.png"):
        pictures.main()


def test_missing_browser_says_what_to_install(monkeypatch):
    monkeypatch.setattr(pictures.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="chromium"):
        pictures.browser()


def test_pages_of_the_site_are_taken_at_both_widths(monkeypatch, tmp_path):
    """A window is never narrower than what Chromium opens: a telephone's page stands in a frame."""
    site = tmp_path / "site"
    (site / "ci").mkdir(parents=True)
    (site / "ci" / "index.html").write_text("<p>page</p>")
    opened = []

    def run(line, check):
        with urllib.request.urlopen(line[-1]) as page:
            opened.append((next(word for word in line if "window-size" in word), page.read().decode()))
        (shot,) = [word for word in line if word.startswith("--screenshot=")]
        pictures.Path(shot.partition("=")[2]).write_text("picture")

    monkeypatch.setattr(pictures, "SITE", site)
    monkeypatch.setattr(pictures, "SITE_PICTURES", tmp_path / "pictures")
    monkeypatch.setattr(pictures, "browser", lambda: "chromium")
    monkeypatch.setattr(pictures.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["pictures", "--site", "ci"])
    pictures.main()
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["ci-1280.png", "ci-390.png"]
    (desk, page), (telephone, frame) = opened
    assert (desk, page) == ("--window-size=1280,2400", "<p>page</p>")
    assert telephone == "--window-size=390,2400"
    assert re.search(r'src="http://127\.0\.0\.1:\d+/ci/index\.html" style="width:390px', frame)


def test_a_page_that_the_site_lacks_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(pictures, "SITE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pictures", "--site", "nosuch"])
    with pytest.raises(SystemExit, match=r"there is no .*/nosuch/index\.html: `make site` builds"):
        pictures.main()
