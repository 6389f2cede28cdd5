"""Files of tensors saved in a dry run: what was there stays, and loading finds what was saved."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

GOOD = b"a checkpoint of weeks"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("good.pt").write_bytes(GOOD)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*reads a value of a device|.*a dry run writes no files")
        yield


def saved(path: Any, **options: Any) -> dict[str, Any]:
    model = nn.Linear(4, 2).to("loom")
    state = {"model": model.state_dict(), "epoch": 3, "random": torch.get_rng_state()}
    torch.save(state, path, **options)
    return state


@pytest.mark.parametrize("is_zip", [True, False])
def test_saving_leaves_the_file_and_loading_finds_what_was_saved(is_zip: bool) -> None:
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        with pytest.warns(UserWarning, match=r"good.pt: a dry run writes no files of tensors") as told:
            state = saved("good.pt", _use_new_zipfile_serialization=is_zip)
        assert [each.filename for each in told if "writes no files" in str(each.message)] == [__file__]
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*a dry run writes no files")
            saved("other.pt")
        found = torch.load("good.pt")
        assert found["epoch"] == 3
        assert found["model"]["weight"].device == torch.device("loom:0")
        assert torch.equal(found["random"], state["random"])
        assert torch.load("good.pt", map_location="cpu")["model"]["bias"].device.type == "cpu"
        nn.Linear(4, 2).to("loom").load_state_dict(found["model"])
    assert plan.unwritten_files == ["good.pt", "other.pt"]
    assert Path("good.pt").read_bytes() == GOOD
    assert os.listdir() == ["good.pt"]


def test_saving_again_leaves_what_was_loaded() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        torch.save({"large": torch.ones(1 << 20), "small": torch.ones(3)}, "good.pt")
        first = torch.load("good.pt")
        saved("good.pt")
        assert first["large"].sum() == 0  # of the dry run's host
        assert first["small"].tolist() == [1, 1, 1]


def test_a_large_model_takes_no_room() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        model = nn.Linear(1 << 16, 1 << 17, dtype=torch.bfloat16).to("loom")
        torch.save(model.state_dict(), "large.pt")
        status = os.stat("large.pt")
        assert status.st_size > 1 << 34
        assert status.st_blocks * 512 < 1 << 24
        assert torch.load("large.pt")["weight"].shape == model.weight.shape
        assert torch.load("large.pt", map_location="cpu")["weight"].shape == model.weight.shape
    assert not os.path.exists("large.pt")


def test_what_is_saved_beside_and_moved() -> None:
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        saved(Path("new.tmp"))
        assert Path("new.tmp").exists()
        os.replace("new.tmp", "good.pt")
        assert not os.path.exists("new.tmp")
        assert torch.load("good.pt")["epoch"] == 3
        shutil.copy2("good.pt", "best.pt")
        os.remove("good.pt")
        assert torch.load("best.pt")["epoch"] == 3
        with open("good.pt", "rb") as file:
            assert file.read() == GOOD
    assert plan.unwritten_files == ["new.tmp", "good.pt", "best.pt"]
    assert Path("good.pt").read_bytes() == GOOD
    assert os.listdir() == ["good.pt"]


def test_folders_are_moved_and_removed_and_files_replaced() -> None:
    os.makedirs("old")
    Path("old/good.pt").write_bytes(GOOD)
    Path("real.pt").write_bytes(GOOD)
    with torch.loom.dry_run(chip="h200", devices=1):
        saved("good.pt")
        shutil.rmtree("old")  # by names within an open folder
        assert not os.path.exists("old")
        assert torch.load("good.pt")["epoch"] == 3
        os.makedirs("new")
        saved("new/part.pt")
        os.rename("new", "newer")
        assert torch.load("newer/part.pt")["epoch"] == 3
        os.replace("real.pt", "good.pt")
        assert Path("good.pt").read_bytes() == GOOD


def test_where_no_file_can_be_the_error_is_a_runs() -> None:
    safe = pytest.importorskip("safetensors.torch")
    os.makedirs("folder")
    state = {"a": torch.ones(2)}

    def failures() -> list[str]:
        found = []
        for path in ("none/a.pt", "folder"):
            for save in (torch.save, safe.save_file):
                try:
                    save(state, path)
                except Exception as error:
                    found.append(repr(error).partition(" at path ")[0])  # which is a random name
        return found

    outside = failures()
    assert len(outside) == 4
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        assert failures() == outside
    assert not plan.unwritten_files


def test_a_real_file_replaces_what_was_kept() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        saved("copy.pt")
        shutil.copyfile("good.pt", "copy.pt")
        assert Path("copy.pt").read_bytes() == GOOD
        assert os.stat("copy.pt").st_size == len(GOOD)


@pytest.mark.long
def test_one_object_serves_two_dry_runs() -> None:
    run = torch.loom.dry_run(chip="h200", devices=1)
    for _ in range(2):
        with run:
            saved("twice.pt")
            assert torch.load("twice.pt")["epoch"] == 3
        assert not os.path.exists("twice.pt")


def test_a_file_has_several_names(tmp_path: Path) -> None:
    os.symlink("good.pt", "link.pt")
    Path("folder").mkdir()
    os.symlink("folder", "other")
    with torch.loom.dry_run(chip="h200", devices=1):
        saved("link.pt")
        assert torch.load(tmp_path / "good.pt")["epoch"] == 3
        assert os.path.islink("link.pt")
        saved("other/state.pt")
        assert os.path.exists("folder/state.pt")
        os.replace("folder/state.pt", "folder/moved.pt")
        assert torch.load("other/moved.pt")["epoch"] == 3
        os.remove("other/moved.pt")
        assert not os.path.exists("folder/moved.pt")
    assert Path("good.pt").read_bytes() == GOOD


def test_programs_open_and_overwrite_what_was_saved() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        saved("new.pt")
        with open("new.pt", "rb") as file:
            assert torch.load(file)["epoch"] == 3
        assert len(Path("new.pt").read_bytes()) == os.path.getsize("new.pt")
        Path("new.pt").write_text("no tensors")
        assert Path("new.pt").read_text() == "no tensors"
        Path("folder").mkdir()
        saved("folder/state.pt")
        shutil.rmtree("folder")
        assert not os.path.exists("folder/state.pt")
    assert Path("new.pt").read_text() == "no tensors"


def test_what_cannot_be_written_is_an_error() -> None:
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        with pytest.raises(RuntimeError, match="does not exist"):
            saved("missing/state.pt")
        Path("folder").mkdir()
        with pytest.raises(RuntimeError, match="directory"):
            saved("folder")
    assert plan.unwritten_files == []


def test_open_files_and_buffers() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        with open("open.pt", "wb") as file:
            saved(file)
        with open("open.pt", "rb") as file:
            assert torch.load(file)["epoch"] == 3
        buffer = io.BytesIO()
        saved(buffer)
        buffer.seek(0)
        assert torch.load(buffer)["epoch"] == 3
    assert Path("open.pt").read_bytes() == b""


def test_safetensors(monkeypatch: pytest.MonkeyPatch) -> None:
    safe = pytest.importorskip("safetensors.torch")
    # As a module has it that says: from safetensors import safe_open.
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "safe_open", safe.safe_open, raising=False)
    torch.loom.synchronize()
    safe.save_file({"a": torch.ones(2)}, "good.safetensors")
    with torch.loom.dry_run(chip="h200", devices=1):
        safe.save_file({"b": torch.ones(2, 3, device="loom")}, "good.safetensors", metadata={"format": "pt"})
        assert safe.load_file("good.safetensors")["b"].shape == (2, 3)
        with here.safe_open("good.safetensors", "pt") as file:  # type: ignore[attr-defined]
            assert file.keys() == ["b"]
    assert here.safe_open is safe.safe_open  # type: ignore[attr-defined]
    assert safe.load_file("good.safetensors")["a"].tolist() == [1, 1]


@pytest.mark.slow
def test_distributed_checkpoints() -> None:
    from torch.distributed import checkpoint

    checkpoint.save({"a": torch.ones(2)}, checkpoint_id="folder")
    before = {path: path.read_bytes() for path in Path("folder").iterdir()}
    with torch.loom.dry_run(chip="h200", devices=1):
        state = {"a": torch.ones(2, 3, device="loom"), "step": 7}
        checkpoint.save(state, checkpoint_id="folder")
        state["step"] = 0
        checkpoint.load(state, checkpoint_id="folder")
        assert state["step"] == 7
    assert {path: path.read_bytes() for path in Path("folder").iterdir()} == before


def test_outside_files_are_written_as_ever() -> None:
    with torch.loom.dry_run(chip="h200", devices=1):
        pass
    torch.save({"epoch": 4}, "good.pt")
    assert torch.load("good.pt") == {"epoch": 4}


# What a dry run replaces while it keeps a file.
SYSTEM = [(builtins, "open"), (io, "open"), (shutil, "copyfile")] + [
    (os, name) for name in ("replace", "rename", "remove", "unlink", "rmdir", "stat", "lstat", "access")
]


def use_files() -> None:
    """Write, look at, move and remove files, as a thread does that knows nothing of a dry run."""
    assert Path("good.pt").read_bytes() == GOOD
    assert os.path.getsize("good.pt") == len(GOOD)
    assert not os.path.exists("new.pt")
    with pytest.raises(FileNotFoundError):
        os.remove("new.pt")
    with open("own.txt", "x", encoding="utf-8", buffering=1) as file:
        file.write("own")
    shutil.copyfile("own.txt", "new.pt")
    os.replace("new.pt", "moved.txt")
    assert Path("moved.txt").read_text() == "own"
    os.remove("own.txt")
    torch.save({"epoch": 9}, "theirs.pt")
    assert os.path.getsize("theirs.pt") > 0
    assert torch.load("theirs.pt") == {"epoch": 9}
    Path("moved.txt").write_text("written")


def test_other_threads_have_the_systems_files() -> None:
    with ThreadPoolExecutor(1) as other:
        other.submit(int).result()  # its thread is there
        with torch.loom.dry_run(chip="h200", devices=1) as plan:
            saved("good.pt")
            saved("new.pt")
            other.submit(use_files).result()
            assert torch.load("good.pt")["epoch"] == 3
            assert torch.load("new.pt")["epoch"] == 3
            assert Path("moved.txt").read_text() == "written"
    assert plan.unwritten_files == ["good.pt", "new.pt"]
    assert Path("good.pt").read_bytes() == GOOD
    assert torch.load("theirs.pt") == {"epoch": 9}
    assert sorted(os.listdir()) == ["good.pt", "moved.txt", "theirs.pt"]


def test_threads_that_a_dry_run_starts_write_no_files_of_tensors() -> None:
    def save_and_move() -> None:
        saved("new.tmp")
        os.replace("new.tmp", "good.pt")
        assert torch.load("good.pt")["epoch"] == 3

    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        with ThreadPoolExecutor(1) as saver, ThreadPoolExecutor(1) as other:
            saver.submit(save_and_move).result()
            assert other.submit(Path("good.pt").read_bytes).result() == GOOD
        assert Path("good.pt").read_bytes() != GOOD
    assert plan.unwritten_files == ["new.tmp", "good.pt"]
    assert Path("good.pt").read_bytes() == GOOD


def test_nothing_of_the_system_is_replaced_before_a_file_is_kept() -> None:
    before = [getattr(owner, name) for owner, name in SYSTEM]
    sets = [set(each) for each in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks)]
    with torch.loom.dry_run(chip="h200", devices=1):
        torch.ones(3, device="loom")
        assert [getattr(owner, name) for owner, name in SYSTEM] == before
        saved("new.pt")
        assert os.stat in os.supports_fd
        assert os.utime in os.supports_follow_symlinks
    assert [getattr(owner, name) for owner, name in SYSTEM] == before
    assert [set(each) for each in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks)] == sets


def test_reads_are_counted_by_line() -> None:
    with torch.loom.dry_run(chip="h200", devices=1) as plan:
        x = torch.ones(3, device="loom")
        for _ in range(3):
            x.sum().item()
        assert list(plan.value_reads().values()) == [3]
    (line,) = plan.value_reads()
    file, _, number = line.rpartition(":")
    assert file == __file__
    with open(__file__, encoding="utf-8") as source:
        assert ".item()" in source.read().splitlines()[int(number) - 1]
    with torch.loom.dry_run(chip="h200", devices=1) as other:
        pass
    assert other.value_reads() == {}
