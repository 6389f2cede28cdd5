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
    """Also writes which torch the extension was built against, to be read without loading the extension."""

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
            include_dirs=[str(ROOT / "csrc")],
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
