"""The command that runs other projects' test files in CUDA's name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.testing._internal.common_cuda as helpers

from tests.conformance import suite_plugin, suites

TESTS = """
import pytest, torch

def test_passes():
    assert torch.ones(2, device="cuda").is_cuda and torch.cuda.device_count() == 3

def test_fails():
    raise ValueError("too small")

def test_needs():
    raise RuntimeError("nvcc is not found")

@pytest.mark.skip
def test_skipped():
    pass
"""


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_one.py").write_text(TESTS)
    assert suites.main([str(tmp_path), "--devices", "3", "--memory", "1GiB", "--no-write"]) == 1
    printed = capsys.readouterr().out
    assert "test_one.py: 1 passed, 1 failed, 1 need more, 1 skipped" in printed
    assert "test_fails: [failed] ValueError: too small" in printed


def test_failures_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A test that others disturb passes in a process of its own; one that fails there, too, has failed."""
    (tmp_path / "test_two.py").write_text(
        "import pytest\nseen = []\n"
        "def test_first():\n    seen.append(1)\n"
        "class TestIt:\n    def test_disturbed(self):\n        assert not seen\n"
        "    def test_fails(self):\n        raise ValueError\n"
    )
    assert suites.main([str(tmp_path), "--again", "--no-write"]) == 1
    printed = capsys.readouterr().out
    assert "test_two.py: 2 passed, 1 failed, 0 need more, 0 skipped" in printed
    assert "TestIt.test_fails" in printed


def test_the_file_of_a_report_has_its_tests(tmp_path: Path) -> None:
    for folder, test in (("a", "one"), ("b", "two"), ("c", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test_x.py").write_text(f"class TestIt:\n    def test_{test}(self): ...\n")
    options = suites.parse([str(tmp_path)])

    def file_of(test: str) -> Path:
        return suites.file_of(
            options, suites.FileResult("test_x.py", failures=[suites.Failure(test, "", None)])
        )

    assert file_of("TestItCUDA.test_one_cuda_float32") == tmp_path / "a" / "test_x.py"
    with pytest.raises(SystemExit, match=r"test_x\.py is in b, c of"):
        file_of("TestIt.test_two")
    (tmp_path / "test_x.py").write_text("class TestIt:\n    def test_two(self): ...\n")
    assert file_of("TestIt.test_two") == tmp_path / "test_x.py"


@pytest.mark.parametrize(
    ("module", "status", "counts"),
    [("torch.jit", 0, "0 failed, 1 need more"), ("torch.cuda", 1, "1 failed, 0 need more")],
)
def test_a_file_that_is_not_imported_is_counted_once(
    module: str, status: int, counts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PyTorch may have taken the name away, but those of torch.cuda are this project's to have."""
    (tmp_path / "test_old.py").write_text(f"from {module} import no_such_name\n")
    assert suites.main([str(tmp_path), "--no-write"]) == status
    printed = capsys.readouterr().out
    assert f"test_old.py: 0 passed, {counts}" in printed
    if status:
        assert f"ImportError: cannot import name 'no_such_name' from '{module}'" in printed


def test_a_text_of_one_file_says_nothing_of_others() -> None:
    text = "E   Exception: too many values to unpack (expected 2)"
    assert suites.what_it_needs(text, "test_vmap.py") == suites.OLDER_PYTORCH
    assert suites.what_it_needs(text, "test_nn.py") is None


def test_the_name_of_the_backend_is_no_need() -> None:
    text = "RuntimeError: the nccl backend has no hooks"
    assert suites.what_it_needs(text) == "a library of NVIDIA's"
    assert suites.what_it_needs(text, "test_c10d_nccl.py") is None


def test_sections_replace_their_own() -> None:
    result = suites.FileResult("test_a.py", 3, 1, [suites.Failure("A.b", "x | y", None)])
    first = suites.with_section("# Conformance\n\nown\n", "One", suites.section("One", [result]))
    both = suites.with_section(first, "Two", suites.section("Two", [result]))
    assert first.startswith("# Conformance\n\nown\n")
    assert "75.00%" in first
    again = suites.with_section(both, "One", suites.section("One", [suites.FileResult("test_a.py", 4)]))
    assert again.count("### One") == again.count("### Two") == again.count(suites.HEADING) == 1
    assert "100.00%" in again
    assert suites.kept_part(again).startswith(suites.HEADING)
    assert suites.kept_part("nothing") == ""


def test_messages_name_files_only() -> None:
    assert suites.first_line("\n'run /home/a/b.py' failed\nmore") == "'run b.py' failed"
    assert suites.first_line("see https://x.org/a/b") == "see https://x.org/a/b"


def test_crash_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_ends.py").write_text("import os\nos._exit(7)\n")
    assert suites.main([str(tmp_path), "--no-write"]) == 1
    assert "exit status 7" in capsys.readouterr().out


def test_reports_of_pieces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(name: str, *cases: str) -> str:
        rows = "".join(f"<testcase classname='test_x.A' {case}</testcase>" for case in cases)
        (tmp_path / name).write_text(f"<testsuites><testsuite>{rows}</testsuite></testsuites>")
        return str(tmp_path / name)

    monkeypatch.setitem(suites.KNOWN, ("test_x.py", "A.test_known"), ("an older PyTorch", "has no such name"))
    monkeypatch.setitem(suites.NOT_RUN, ("test_x.py", "A.test_long"), "not run: an hour")
    failed = "<failure message='too small'/>"
    first = report(
        "1.xml", f"name='test_fixed'>{failed}", "name='test_skipped'><skipped/>", "name='test_good'>"
    )
    twice = ["name='test_known'><failure message='x'/>", "name='test_known'><error message='y'/>"]
    second = report("2.xml", "name='test_fixed'>", *twice)
    assert suites.main([str(tmp_path), "--no-write", "--reports", first, second]) == 1
    printed = capsys.readouterr().out
    assert "test_x.py: 2 passed, 1 failed, 1 need more, 1 skipped" in printed
    assert "A.test_known: [an older PyTorch] has no such name" in printed
    assert "A.test_long: [failed] not run: an hour" in printed


def test_a_share_of_an_older_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"test_{number}" for number in range(12)]
    tests = "".join(f"def {name}():\n    assert not tf32_is_not_fp32()\n" for name in names)
    (tmp_path / "test_old.py").write_text(
        f"from torch.testing._internal.common_cuda import tf32_is_not_fp32\n{tests}"
    )
    shares = [f"{part}/3" for part in range(3)]
    counts = [
        sum(suite_plugin.is_in_share(f"test_old.py::{name}", share) for name in names) for share in shares
    ]
    assert sum(counts) == 12
    assert all(counts)
    assert all(suite_plugin.is_in_share(name, "0-2/3") for name in names)
    plugin = f"-p tests.conformance.suite_plugin --share {shares[1]}"
    assert suites.main([str(tmp_path), "--no-write", "--pytest", plugin]) == 0
    assert f"test_old.py: {counts[1]} passed, 0 failed" in capsys.readouterr().out
    monkeypatch.delattr(helpers, "tf32_is_not_fp32", raising=False)
    assert suite_plugin.add_names("common_cuda tf32_is_not_fp32()") == ["tf32_is_not_fp32"]
    assert suite_plugin.add_names("common_cuda tf32_is_not_fp32()") == []


def test_an_older_class_sets_itself_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PyTorch's device classes derive from the class of the file, whose `self.__class__` is then another."""
    (tmp_path / "test_old.py").write_text(
        "import unittest\n"
        "class TestOld(unittest.TestCase):\n"
        "    def setUp(self):\n        super(self.__class__, self).setUp()\n        self.is_up = True\n"
        "class TestOldCUDA(TestOld):\n"
        "    setUp = TestOld.setUp\n"
        "    def tearDown(self):\n        super().tearDown()\n"
        "    def test_up(self):\n        assert self.is_up\n"
    )
    plugin = "-p tests.conformance.suite_plugin"
    assert suites.main([str(tmp_path), "--no-write", "--pytest", plugin]) == 0
    assert "test_old.py: 1 passed, 0 failed" in capsys.readouterr().out


def test_what_fails_on_the_cpu_too_is_of_an_older_pytorch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_both.py").write_text(
        "import pytest\n"
        "class TestOpsCPU:\n"
        "    def test_old_cpu(self):\n        raise ValueError\n"
        "    def test_new_cpu(self):\n        pass\n"
        "    @pytest.mark.parametrize('x', ['a-b'])\n"
        "    def test_each_cpu(self, x):\n        raise ValueError\n"
        "class TestOpsCUDA:\n"
        "    def test_old_cuda(self):\n        raise ValueError\n"
        "    def test_new_cuda(self):\n        raise ValueError\n"
        "    @pytest.mark.parametrize('x', ['a-b'])\n"
        "    def test_each_cuda(self, x):\n        raise ValueError\n"
    )
    assert suites.main([str(tmp_path), "--no-write", "--baseline", "--pytest=-k cuda"]) == 1
    printed = capsys.readouterr().out
    assert (
        "TestOpsCUDA.test_old_cuda: [the PyTorch that it was written for] fails on the device cpu" in printed
    )
    assert "TestOpsCUDA.test_each_cuda[a-b]: [the PyTorch that it was written for]" in printed
    assert "TestOpsCUDA.test_new_cuda: [failed] ValueError" in printed


def test_functions_of_modules_in_folders(tmp_path: Path) -> None:
    report = tmp_path / "1.xml"
    report.write_text(
        "<testsuites><testsuite><testcase classname='tests.ops.test_gla' name='test_chunk[1]'/>"
        "<testcase classname='tests.ops.test_gla.TestA' name='test_b'/><testcase/></testsuite></testsuites>"
    )
    (found,) = suites.read_reports([report])
    assert (found.name, found.passed) == ("test_gla.py", 2)
