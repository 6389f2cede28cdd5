"""The pictures of pages: each has a program, stands in a document, and is taken by its name."""

import sys

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
