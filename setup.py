"""Builds the C++ extension `torch_loom._C` against the torch that is installed."""

from pathlib import Path

from setuptools import setup

try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ModuleNotFoundError as error:
    raise SystemExit(
        "torch-loom is compiled against the torch that is installed, and there is none in this environment: "
        "run `pip install torch==2.13.0`, then `pip install --no-build-isolation .`"
    ) from error

ROOT = Path(__file__).parent
SOURCES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.cpp"))


class BuildExtensionAndRecord(BuildExtension):
    """Keeps objects between builds, and records which torch the extension was built against.

    The record is read without loading the extension, which may not load under another torch.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        # Objects stay here between builds, through pip as well, so that touching one file compiles one file.
        self.build_temp = str(ROOT / "build" / "temp")

    def run(self) -> None:
        super().run()
        record = Path(self.get_ext_fullpath("torch_loom._C")).with_name("_built_with.py")
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(
            f'"""Written by setup.py."""\n\nTORCH_VERSION = "{torch.__version__}"\n', encoding="utf-8"
        )


setup(
    ext_modules=[
        CppExtension(
            "torch_loom._C",
            SOURCES,
            # ninja needs absolute include paths: it compiles from the build directory.
            include_dirs=[str(ROOT / "csrc"), str(Path(torch.__file__).parent / "include" / "kineto")],
            # The version the extension was built against; it is compared with the running one at first use.
            define_macros=[("LOOM_BUILT_TORCH_VERSION", f'"{torch.__version__}"')],
            extra_compile_args=[
                "-O2",
                "-g0",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
            ],
        )
    ],
    cmdclass={"build_ext": BuildExtensionAndRecord.with_options(use_ninja=True)},
)
